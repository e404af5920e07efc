#pragma once

#include <cstdint>

#include "kernels/cache_view.h"
#include "kernels/cuda/device/entry_tile.cuh"
#include "kernels/cuda/device/index_tile.cuh"
#include "kernels/numeric.h"

namespace baton::kernels::cuda {

// Where an entry's bytes lie; see EntryFormat for the layouts.
struct EntryPlace {
  int64_t page = -1;  // its offset in the pool; -1: nothing to store
  int index = 0;      // of the entry in its page

  // What lane `lane` of the warp holds.
  __device__ EntryPlace FromLane(int lane) const {
    return {.page = __shfl_sync(kFullWarp, page, lane),
            .index = __shfl_sync(kFullWarp, index, lane)};
  }
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
  return {.page = pages[page] * pool.page_bytes, .index = entry - page * pool.entries_per_page};
}

// EncodeEntry of a row of a tile; `amax` are the largest magnitudes of its chunks. With kSimulate
// what is stored was first rounded to the grid of the reference numerics: values come so, but for
// FP4, where the grid is the format's own and rounding and coding are one.
template <EntryFormat kFormat, bool kSimulate>
struct EntryWriter;

template <bool kSimulate>
struct EntryWriter<EntryFormat::kBf16, kSimulate> {
  template <int kHeadDim>
  __device__ static void Store(const EntryTile<kHeadDim>& tile, const float* /*amax*/,
                               std::byte* page, int index, int /*entries_per_page*/) {
    using Tile = EntryTile<kHeadDim>;
    BFloat16* row = reinterpret_cast<BFloat16*>(page) + int64_t{index} * kHeadDim;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      StoreStreaming(reinterpret_cast<Vector16*>(row + Tile::Channel(0) + Tile::Step(chunk)),
                     tile.Chunk(chunk));
    }
  }
};

template <bool kSimulate>
struct EntryWriter<EntryFormat::kFp8Packed, kSimulate> {
  using Tile = EntryTile<512>;
  static constexpr int kGroups = Tile::kRopeChunk;  // a chunk of 8 lanes is a group of 64
  static constexpr int kCodes = 64 * kGroups;
  static constexpr int kValueBytes = kCodes + 2 * kRopeDim;

  __device__ static void Store(const Tile& tile, const float* amax, std::byte* page, int index,
                               int entries_per_page) {
    std::byte* values = page + index * kValueBytes;
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
      std::byte* all_scales = page + entries_per_page * kValueBytes;
      reinterpret_cast<uint2*>(all_scales)[index] = {scales[0], scales[1]};
    }
  }
};

template <bool kSimulate>
struct EntryWriter<EntryFormat::kFp8Index, kSimulate> {
  using Tile = EntryTile<128>;

  __device__ static void Store(const Tile& tile, const float* amax, std::byte* page, int index,
                               int entries_per_page) {
    const float scale = Fp8Scale(fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3])));
    std::byte* values = page + index * 128;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      StoreStreaming(reinterpret_cast<uint2*>(values + Tile::Channel(0) + Tile::Step(chunk)),
                     EncodeE4m3(tile.words[chunk], InverseOfPowerOfTwo(scale)));
    }
    if (Tile::LaneOfRow() == 0) {
      reinterpret_cast<float*>(page + entries_per_page * 128)[index] = scale;
    }
  }
};

// Bytes `even` and `odd` of four words: those of the words' low halves, then those of the high
// ones.
__device__ inline uint2 GatherBytes(const uint32_t (&words)[4], uint32_t even, uint32_t odd) {
  const uint32_t order = even | (even + 4) << 4 | odd << 8 | (odd + 4) << 12;
  const uint32_t low = __byte_perm(words[0], words[1], order);
  const uint32_t high = __byte_perm(words[2], words[3], order);
  return {__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632)};
}
__device__ inline uint32_t SelectBits(uint32_t a, uint32_t b, uint32_t of_a) {
  return (a & of_a) | (b & ~of_a);
}
// Twice the magnitudes of eight e2m1 codes without signs, none of which exceeds 3.
__device__ inline uint32_t DoubleE2m1(uint32_t codes) {
  constexpr uint32_t kDoubled[] = {0x05040200u, 0x07070706u};  // of 0 to 3 and of 4 and 5
  const uint32_t low = __byte_perm(kDoubled[0], kDoubled[1], codes);
  const uint32_t high = __byte_perm(kDoubled[0], kDoubled[1], codes >> 16);
  return __byte_perm(low + (low >> 4), high + (high >> 4), 0x6420);
}

// Eight e2m1 codes of a chunk, rounded, the first in the lowest nibble; `inverse` is 1 / scale.
// Half a magnitude is added to 64 times the larger of its own power of two, 2^e, and 1/2: what is
// left of it is n = 0 to 4 units of 2^e / 2 in the lowest bits of the sum, whose exponent field is
// e + 133. The code is n + 2 (e + 1): the lowest bits of the sum plus the sum over 64. With
// `doubled` the codes are those of twice the rounded values, which do not exceed 3.
__device__ inline uint32_t EncodeE2m1Chunk(const uint32_t (&words)[4], float inverse,
                                           bool doubled) {
  constexpr uint32_t kHalf = 0x3f003f00u;
  constexpr uint32_t kShift = 0x42804280u;
  const uint32_t factor = SplatBf16(0.5f * inverse);
  uint32_t sums[4];  // codes in the lowest bits of halves
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const __nv_bfloat162 magnitude = __habs2(AsBf16x2(MultiplyPair(words[k], factor)));
    const __nv_bfloat162 unit = __hmax2(AsBf16x2(AsWord(magnitude) & 0x7f807f80u), AsBf16x2(kHalf));
    const uint32_t sum = AsWord(__hfma2(unit, AsBf16x2(kShift), magnitude));
    sums[k] = sum + (sum >> 6);
  }
  const uint2 code = GatherBytes(sums, 0, 2);
  const uint2 sign = GatherBytes(words, 1, 3);
  uint32_t codes = SelectBits(code.x, code.y << 4, 0x0f0f0f0fu) & 0x77777777u;
  if (doubled) codes = DoubleE2m1(codes);
  return codes | (SelectBits(sign.x >> 4, sign.y, 0x0f0f0f0fu) & 0x88888888u);
}

// Groups are stored with the scale of what they were rounded to: half the scale that they were
// rounded by where their largest magnitude became 3 times that.
template <bool kSimulate>
struct EntryWriter<EntryFormat::kFp4Index, kSimulate> {
  using Tile = EntryTile<128>;
  static constexpr uint32_t kNanScale = 255;

  __device__ static void Store(const Tile& tile, const float* amax, std::byte* page, int index,
                               int entries_per_page) {
    std::byte* values = page + index * 64;
    uint32_t scales = 0;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      const float largest = amax[chunk];
      const float scale = Fp4Scale(largest);
      float stored = scale;
      bool halved = false;
      if constexpr (kSimulate) {
        stored = Fp4Scale(largest < 3.5f * scale ? 3.0f * scale : largest);
        halved = stored != scale;
      }
      scales |= (largest == largest ? EncodeE8m0(stored) : kNanScale) << (8 * chunk);
      StoreStreaming(
          reinterpret_cast<uint32_t*>(values + Tile::Channel(0) / 2 + Tile::Step(chunk) / 2),
          EncodeE2m1Chunk(tile.words[chunk], InverseOfPowerOfTwo(scale), halved));
    }
    if (Tile::LaneOfRow() == 0) {
      reinterpret_cast<uint32_t*>(page + entries_per_page * 64)[index] = scales;
    }
  }
};

// What StoreEntries does to rows that are normalised and rotated. `place` belongs to the lane's
// row. All lanes of the warp call.
template <EntryFormat kFormat, Numerics kNumerics, int kHeadDim>
__device__ inline void StoreRows(EntryTile<kHeadDim>& tile, const EntryOperands<kHeadDim>& operands,
                                 const PagedPool& pool, const EntryPlace& place) {
  using Tile = EntryTile<kHeadDim>;
  constexpr bool kSimulate = kNumerics == Numerics::kReference;
  constexpr bool kIsIndex = kHeadDim == 128;
  constexpr int kGroups = kIsIndex ? Tile::kChunks : Tile::kRopeChunk;  // that are quantised
  if constexpr (kIsIndex) HadamardRow(tile, operands);
  float amax[kGroups] = {};
  if constexpr (kSimulate || kFormat != EntryFormat::kBf16) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      amax[group] = tile.LargestOfChunk(group);
      if constexpr (kSimulate && kFormat != EntryFormat::kFp4Index) {
        amax[group] = tile.template SnapToGrid < kIsIndex ? 1 : 3 > (group, amax[group]);
      }
    }
  }
  if (place.page >= 0) {
    EntryWriter<kFormat, kSimulate>::Store(tile, amax, pool.data + place.page, place.index,
                                           pool.entries_per_page);
  }
}

}  // namespace baton::kernels::cuda
