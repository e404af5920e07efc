#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/bf16.h"
#include "engine/cache/geometry.h"
#include "kernels/cache_view.h"

// The bytes of the cache. Pools are layer-major; slots hold the position-indexed rings of one
// sequence each. Knows nothing of who owns a page or slot: see page_pool.h.
//
// Layer arguments are ordinals among the layers of that kind (CSA 0, 1, ...), except Window(),
// which takes the trunk layer index. Memory is zero at construction.

namespace baton::engine {

class CacheStorage {
 public:
  explicit CacheStorage(const CacheGeometry& geometry);

  const CacheGeometry& geometry() const { return geometry_; }

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
  kernels::RowRing<BFloat16> Carry(int slot) const;

  // Compressor rows of positions < 0 read as (c = 0, g = -inf); a fresh sequence needs them so.
  // Engine thread only.
  void ResetSlot(int slot);

 private:
  CacheGeometry geometry_;
  std::vector<std::byte> pages_;
  std::vector<std::byte> slots_;
};

}  // namespace baton::engine
