#pragma once

#include <cstdint>

#include "kernels/cache_view.h"
#include "kernels/cuda/device/entry_tile.cuh"
#include "kernels/numeric.h"

namespace baton::kernels::cuda {

// Where an entry's bytes lie; see EntryFormat for the layouts.
struct EntryPlace {
  std::byte* page = nullptr;  // null: nothing to store
  int index = 0;              // of the entry in its page
};

// Divides entries by pool.entries_per_page, by a multiplication: exact while their product is below
// 2^32.
class PageDivider {
 public:
  __device__ explicit PageDivider(const PagedPool& pool)
      : inverse_(0xffffffffu / static_cast<uint32_t>(pool.entries_per_page) + 1) {}
  __device__ int PageOf(int entry) const {
    return inverse_ == 0 ? entry : static_cast<int>(__umulhi(entry, inverse_));
  }

 private:
  uint32_t inverse_;  // 0: one entry a page
};

__device__ inline EntryPlace LocateEntry(const PagedPool& pool, const PageDivider& divider,
                                         const int32_t* pages, int entry) {
  const int page = divider.PageOf(entry);
  return {.page = pool.data + pages[page] * pool.page_bytes,
          .index = entry - page * pool.entries_per_page};
}

// EncodeEntry of a row of a tile; `amax` are the largest magnitudes of its chunks. `kOnGrid`:
// values are on the FP4 grid already, so that coding them again rounds nothing.
template <EntryFormat kFormat, bool kOnGrid>
struct EntryWriter;

template <bool kOnGrid>
struct EntryWriter<EntryFormat::kBf16, kOnGrid> {
  template <int kHeadDim>
  __device__ static void Store(const EntryTile<kHeadDim>& tile, int i, const float* /*amax*/,
                               const EntryPlace& place, int /*entries_per_page*/) {
    tile.Store(i, reinterpret_cast<BFloat16*>(place.page) + int64_t{place.index} * kHeadDim);
  }
};

// Eight e4m3 codes of a chunk.
__device__ inline uint2 EncodeE4m3Chunk(const uint32_t (&words)[4], float inverse) {
  uint16_t codes[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    codes[k] = PackE4m3(LowBf16(words[k]) * inverse, HighBf16(words[k]) * inverse);
  }
  return {codes[0] | uint32_t{codes[1]} << 16, codes[2] | uint32_t{codes[3]} << 16};
}

template <bool kOnGrid>
struct EntryWriter<EntryFormat::kFp8Packed, kOnGrid> {
  using Tile = EntryTile<512>;
  static constexpr int kGroups = Tile::kRopeChunk;  // a chunk of 8 lanes is a group of 64
  static constexpr int kCodes = 64 * kGroups;
  static constexpr int kValueBytes = kCodes + 2 * kRopeDim;

  __device__ static void Store(const Tile& tile, int i, const float* amax, const EntryPlace& place,
                               int entries_per_page) {
    std::byte* values = place.page + place.index * kValueBytes;
    uint32_t scales[2] = {0, 0};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const float scale = Fp8Scale(amax[group]);
      scales[group / 4] |= EncodeE8m0(scale) << (8 * (group % 4));
      *reinterpret_cast<uint2*>(values + Tile::Channel(group)) =
          EncodeE4m3Chunk(tile.words[i][group], InverseOfPowerOfTwo(scale));
    }
    tile.StoreChunk(i, kGroups, values + kCodes + 16 * Tile::LaneOfRow());
    if (Tile::LaneOfRow() == 0) {
      std::byte* all_scales = place.page + entries_per_page * kValueBytes;
      reinterpret_cast<uint2*>(all_scales)[place.index] = {scales[0], scales[1]};
    }
  }
};

template <bool kOnGrid>
struct EntryWriter<EntryFormat::kFp8Index, kOnGrid> {
  using Tile = EntryTile<128>;

  __device__ static void Store(const Tile& tile, int i, const float* amax, const EntryPlace& place,
                               int entries_per_page) {
    const float scale = Fp8Scale(fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3])));
    std::byte* values = place.page + place.index * 128;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      *reinterpret_cast<uint2*>(values + Tile::Channel(chunk)) =
          EncodeE4m3Chunk(tile.words[i][chunk], InverseOfPowerOfTwo(scale));
    }
    if (Tile::LaneOfRow() == 0) {
      reinterpret_cast<float*>(place.page + entries_per_page * 128)[place.index] = scale;
    }
  }
};

// Eight e2m1 codes of a chunk on the grid of 1 / `inverse`, the first in the lowest nibble. Times
// 2^-126 the grid's fields are BF16's own: the code stands in bits 6 to 8 of a half, its sign in
// bit 15.
__device__ inline uint32_t EncodeE2m1Chunk(const uint32_t (&words)[4], uint32_t inverse) {
  constexpr uint32_t kSmallestNormal = 0x00800080u;
  uint32_t nibbles[4];  // two a word, in bits 0 to 3 of the halves
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint32_t pair = MultiplyPair(MultiplyPair(words[k], inverse), kSmallestNormal);
    nibbles[k] = ((pair >> 6) & 0x00070007u) | ((pair >> 12) & 0x00080008u);
  }
  const uint32_t low_words = nibbles[0] | nibbles[1] << 8;
  const uint32_t high_words = nibbles[2] | nibbles[3] << 8;
  return __byte_perm(low_words, high_words, 0x5410) | __byte_perm(low_words, high_words, 0x7632)
                                                          << 4;
}

template <bool kOnGrid>
struct EntryWriter<EntryFormat::kFp4Index, kOnGrid> {
  using Tile = EntryTile<128>;
  static constexpr uint32_t kNanScale = 255;

  __device__ static void Store(Tile& tile, int i, const float* amax, const EntryPlace& place,
                               int entries_per_page) {
    std::byte* values = place.page + place.index * 64;
    uint32_t scales = 0;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      const float scale = Fp4Scale(amax[chunk]);
      scales |= (amax[chunk] == amax[chunk] ? EncodeE8m0(scale) : kNanScale) << (8 * chunk);
      if constexpr (!kOnGrid) tile.template SnapToGrid<1>(i, chunk, amax[chunk]);
      *reinterpret_cast<uint32_t*>(values + Tile::Channel(chunk) / 2) =
          EncodeE2m1Chunk(tile.words[i][chunk], SplatBf16(InverseOfPowerOfTwo(scale)));
    }
    if (Tile::LaneOfRow() == 0) {
      reinterpret_cast<uint32_t*>(place.page + entries_per_page * 64)[place.index] = scales;
    }
  }
};

// What StoreEntries does to rows once they are loaded. `rope[i]` and `place[i]` belong to row i of
// the lane; rope[i] can be read even where nothing is stored. All lanes of the warp call.
template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__device__ inline void FinishEntries(EntryTile<kHeadDim>& tile, const BFloat16* weight, float eps,
                                     const float* const* rope, const EntryPlace* place,
                                     int entries_per_page) {
  using Tile = EntryTile<kHeadDim>;
  constexpr bool kSimulate = kNumerics == Numerics::kReference;
  constexpr bool kIsIndex = kHeadDim == 128;
  constexpr int kGroups = kIsIndex ? Tile::kChunks : Tile::kRopeChunk;  // that are quantised
  float mean[Tile::kRowsPerLane];
  MeanSquares(tile, mean);
  tile.template Normalize<true>(mean, weight, eps);
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerLane; ++i) tile.Rotate(i, rope[i]);
  if constexpr (kIsIndex) HadamardRows(tile);
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerLane; ++i) {
    float amax[kGroups] = {};
    if constexpr (kSimulate || kFormat != EntryFormat::kBf16) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        amax[group] = tile.LargestOfChunk(i, group);
        if constexpr (kSimulate) {
          amax[group] = tile.template SnapToGrid < kIsIndex ? 1 : 3 > (i, group, amax[group]);
        }
      }
    }
    if (place[i].page != nullptr) {
      EntryWriter<kFormat, kSimulate>::Store(tile, i, amax, place[i], entries_per_page);
    }
  }
}

}  // namespace baton::kernels::cuda
