#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/bf16.h"
#include "engine/cache/geometry.h"
#include "kernels/cache_view.h"

// The bytes of the cache. Pools are layer-major; slots hold the position-indexed rings of one
// sequence each. Knows nothing of who owns a page or slot: see page_pool.h.
//
// A slot needs no reset between sequences: what reads a ring names positions, never before 0, and
// every position it names has been written by the sequence that owns the slot now.
//
// Layer arguments are ordinals among the layers of that kind (CSA 0, 1, ...), except Window(),
// which takes the trunk layer index. Main memory takes no room until it is written. Views stay
// valid as long as the object; different records may be used by different threads.

namespace baton::engine {

class CacheStorage {
 public:
  // Memory for the pools or the slots, all zero, aligned to 256 bytes; the deleter gives it back.
  using Memory = std::shared_ptr<std::byte>;

  // Main memory for the pools and slots of a geometry. RESOURCE_EXHAUSTED, naming the options at
  // fault, when the system has no room for so much.
  static absl::StatusOr<std::unique_ptr<CacheStorage>> InMainMemory(const CacheGeometry& geometry);
  explicit CacheStorage(const CacheGeometry& geometry);  // the same; there must be room
  // In any memory: `pages` has options.pages * page_bytes() bytes, `slots` options.slots *
  // slot_bytes(). Views then hold addresses of that memory.
  CacheStorage(const CacheGeometry& geometry, Memory pages, Memory slots);
  CacheStorage(const CacheStorage&) = delete;
  CacheStorage& operator=(const CacheStorage&) = delete;

  const CacheGeometry& geometry() const { return geometry_; }
  uint64_t id() const { return id_; }  // of no other cache of the process, earlier ones included

  kernels::PagedPool CsaKv(int csa) const;
  kernels::PagedPool IndexKeys(int csa) const;
  kernels::PagedPool HcaKv(int hca) const;

  // Window rows: BF16 [head_dim], after norm, RoPE and FP8 simulation.
  kernels::RowRing<BFloat16> Window(int slot, int layer) const;
  kernels::RowRing<BFloat16> MtpWindow(int slot) const;
  // Compressor inputs, FP32. A row is [c_a, c_b, g_a, g_b] for CSA (each head_dim, or
  // index_head_dim for the index compressor) and [c, g] for HCA; `ape` is already added to g.
  kernels::RowRing<float> CsaState(int slot, int csa) const;
  kernels::RowRing<float> IndexState(int slot, int csa) const;
  kernels::RowRing<float> HcaState(int slot, int hca) const;
  // Trunk streams after the last layer of the newest positions: BF16 [streams * hidden_size].
  // Exists only with an MTP block.
  kernels::RowRing<BFloat16> Carry(int slot) const;

 private:
  // Where the rings of a slot start, in bytes from the slot's first.
  struct SlotOffsets {
    int64_t window = 0;  // trunk layers, then the MTP block
    int64_t csa = 0;
    int64_t index = 0;
    int64_t hca = 0;
    int64_t carry = 0;
    int64_t end = 0;
  };

  template <typename T>
  kernels::RowRing<T> Ring(int slot, int64_t offset, int ordinal, int rows, int width) const;

  CacheGeometry geometry_;
  const uint64_t id_;
  SlotOffsets offsets_;
  int64_t index_pool_ = 0;  // byte offset of the first index pool; CSA pools start at 0
  int64_t hca_pool_ = 0;
  const Memory pages_;
  const Memory slots_;
};

}  // namespace baton::engine
