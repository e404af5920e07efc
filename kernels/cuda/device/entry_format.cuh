#pragma once

#include <cstdint>

#include "kernels/cache_view.h"
#include "kernels/cuda/device/entry_tile.cuh"
#include "kernels/numeric.h"

namespace baton::kernels::cuda {

// Where an entry's bytes lie; see EntryFormat for the layouts.
struct EntryPlace {
  std::byte* page = nullptr;
  int index = -1;  // of the entry in its page; -1: nothing to store
};

// Divides entries by pool.entries_per_page, by a multiplication: exact while their product is below
// 2^31.
class PageDivider {
 public:
  __device__ explicit PageDivider(const PagedPool& pool)
      : inverse_(0x7fffffffu / static_cast<uint32_t>(pool.entries_per_page) + 1) {}
  __device__ int PageOf(int entry) const {
    return static_cast<int>(__umulhi(2 * static_cast<uint32_t>(entry), inverse_));
  }

 private:
  uint32_t inverse_;  // times 2^31
};

__device__ inline EntryPlace LocateEntry(const PagedPool& pool, const PageDivider& divider,
                                         const int32_t* pages, int entry) {
  const int page = divider.PageOf(entry);
  const uint64_t offset =
      uint64_t{static_cast<uint32_t>(pages[page])} * static_cast<uint32_t>(pool.page_bytes);
  return {.page = pool.data + offset, .index = entry - page * pool.entries_per_page};
}

template <int kHeadDim>
__device__ inline void StoreBf16(const EntryTile<kHeadDim>& tile, const EntryPlace& place) {
  using Tile = EntryTile<kHeadDim>;
  BFloat16* row = reinterpret_cast<BFloat16*>(place.page) + place.index * kHeadDim;
#pragma unroll
  for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
    StoreStreaming(reinterpret_cast<Vector16*>(row + Tile::Channel(0) + Tile::Step(chunk)),
                   tile.Chunk(chunk));
  }
}

// EncodeEntry of a row of a tile; `amax` are the largest magnitudes of its chunks.
template <EntryFormat kFormat>
struct KvWriter;

template <>
struct KvWriter<EntryFormat::kBf16> {
  __device__ static void Store(const EntryTile<512>& tile, const float* /*amax*/,
                               const EntryPlace& place, int /*entries_per_page*/) {
    StoreBf16(tile, place);
  }
};

template <>
struct KvWriter<EntryFormat::kFp8Packed> {
  using Tile = EntryTile<512>;
  static constexpr int kGroups = Tile::kRopeChunk;  // a chunk of 8 lanes is a group of 64
  static constexpr int kCodes = 64 * kGroups;
  static constexpr int kValueBytes = kCodes + 2 * kRopeDim;

  __device__ static void Store(const Tile& tile, const float* amax, const EntryPlace& place,
                               int entries_per_page) {
    std::byte* values = place.page + place.index * kValueBytes;
    uint32_t scales[2] = {0, 0};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const float scale = Fp8Scale(amax[group]);
      scales[group / 4] |= EncodeE8m0(scale) << (8 * (group % 4));
      StoreStreaming(reinterpret_cast<uint2*>(values + Tile::Channel(0) + Tile::Step(group)),
                     EncodeE4m3(tile.words[group], InverseOfPowerOfTwo(scale)));
    }
    StoreStreaming(reinterpret_cast<Vector16*>(values + kCodes + 16 * Tile::LaneOfRow()),
                   tile.Chunk(kGroups));
    if (Tile::LaneOfRow() == 0) {
      std::byte* all_scales = place.page + entries_per_page * kValueBytes;
      reinterpret_cast<uint2*>(all_scales)[place.index] = {scales[0], scales[1]};
    }
  }
};

// What StoreEntries does to rows that are normalised and rotated. `place` belongs to the lane's
// row. All lanes of the warp call.
template <EntryFormat kFormat, Numerics kNumerics>
__device__ inline void StoreRows(EntryTile<512>& tile, const EntryOperands<512>& /*operands*/,
                                 const PagedPool& pool, const EntryPlace& place) {
  constexpr bool kSimulate = kNumerics == Numerics::kReference;
  constexpr int kGroups = EntryTile<512>::kRopeChunk;  // that are quantised
  float amax[kGroups] = {};
  if constexpr (kSimulate || kFormat != EntryFormat::kBf16) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      amax[group] = tile.LargestOfChunk(group);
      if constexpr (kSimulate) amax[group] = tile.SnapToE4m3(group, amax[group]);
    }
  }
  if (place.index >= 0) KvWriter<kFormat>::Store(tile, amax, place, pool.entries_per_page);
}

}  // namespace baton::kernels::cuda
