#pragma once

#include <cstdint>

#include "kernels/cache_view.h"
#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/device/index_tile.cuh"
#include "kernels/numeric.h"

// Quantisation and storage of index keys. Groups of FP4 values are chunks of all the row's lanes;
// what is computed of two of them lies in the halves of a word.

namespace baton::kernels::cuda {

// Powers of two, the exponents of products.
__device__ inline uint32_t ExponentsOfProduct(uint32_t pair, uint32_t by) {
  return MultiplyPair(pair, by) & 0x7f807f80u;
}

// Fp4Scale of two groups' largest magnitudes; infinity for NaN and infinity. That of m 2^e is
// 2^(e - 2), twice that where m > 1.5: the exponent of the product with a factor that leaves 1.5
// just below, and its successor just above, a power of two.
__device__ inline uint32_t Fp4ScalePair(uint32_t largest) {
  constexpr uint32_t kFloor = 0x01c001c0u;       // 1.5 2^-124
  constexpr uint32_t kBelowThird = 0x3eaa3eaau;  // 0.33203125
  return ExponentsOfProduct(MaxPair(largest, kFloor), kBelowThird);
}
// The scale of the same groups once they are rounded with that: where m < 1.75, the largest becomes
// 3 times the scale, half of which is enough. 1.75 itself rounds up to a power of two.
__device__ inline uint32_t RoundedFp4ScalePair(uint32_t largest) {
  constexpr uint32_t kFloor = 0x01c001c0u;
  constexpr uint32_t kBelowTwoSevenths = 0x3e923e92u;  // 0.28515625
  return ExponentsOfProduct(MaxPair(largest, kFloor), kBelowTwoSevenths);
}

// Half 0 or 1 of a word, in both halves. As an operand that takes no instruction.
__device__ inline uint32_t SplatHalf(uint32_t pair, int half) {
  return AsWord(half == 0 ? __low2bfloat162(AsBf16x2(pair)) : __high2bfloat162(AsBf16x2(pair)));
}

// Snaps chunks `first` and `first + 1` to the grid of e2m1, scaled, and returns what becomes of
// their largest magnitudes.
__device__ inline uint32_t SnapToE2m1(EntryTile<128>& tile, int first, uint32_t largest) {
  const uint32_t scales = Fp4ScalePair(largest);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t scale = SplatHalf(scales, i);
#pragma unroll
    for (uint32_t& pair : tile.words[first + i]) pair = RoundPairToGrid<1>(pair, scale);
  }
  return RoundPairToGrid<1>(largest, scales);
}

// EncodeEntry of a row of a tile; `largest` are the largest magnitudes of chunks 0 and 1, 2 and 3.
// With kSimulate what is stored was first rounded to the grid of the reference numerics: values
// come so, but for FP4, where the grid is the format's own and rounding and coding are one.
template <EntryFormat kFormat, bool kSimulate>
struct IndexWriter;

template <bool kSimulate>
struct IndexWriter<EntryFormat::kBf16, kSimulate> {
  __device__ static void Store(const EntryTile<128>& tile, const uint32_t (&)[2],
                               const EntryPlace& place, int /*entries_per_page*/) {
    StoreBf16(tile, place);
  }
};

template <bool kSimulate>
struct IndexWriter<EntryFormat::kFp8Index, kSimulate> {
  using Tile = EntryTile<128>;

  __device__ static void Store(const Tile& tile, const uint32_t (&largest)[2],
                               const EntryPlace& place, int entries_per_page) {
    const float scale = Fp8Scale(LargerHalf(MaxPair(largest[0], largest[1])));
    std::byte* values = place.page + place.index * 128;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      StoreStreaming(reinterpret_cast<uint2*>(values + Tile::Channel(0) + Tile::Step(chunk)),
                     EncodeE4m3(tile.words[chunk], InverseOfPowerOfTwo(scale)));
    }
    if (Tile::LaneOfRow() == 0) {
      reinterpret_cast<float*>(place.page + entries_per_page * 128)[place.index] = scale;
    }
  }
};

// The lower bytes of the low halves of two words, then of the high ones.
__device__ inline uint32_t GatherLowBytes(const uint32_t* pair) {
  return __byte_perm(pair[0], pair[1], 0x6240);
}
// The signs of the same halves, each in all bits of a byte.
__device__ inline uint32_t GatherSigns(const uint32_t* pair) {
  uint32_t signs;
  asm("prmt.b32 %0, %1, %2, 0xfbd9;" : "=r"(signs) : "r"(pair[0]), "r"(pair[1]));
  return signs;
}
// Bits of `a` where `mask` has one, else of `b`.
__device__ inline uint32_t Select(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(bits) : "r"(mask), "r"(a), "r"(b));
  return bits;
}

// Of two groups, whose largest magnitudes are given.
struct Fp4Scales {
  uint32_t stored;
  uint32_t coarse;  // 0x80 where values were first rounded with twice that scale
};
template <bool kSimulate>
__device__ inline Fp4Scales ScalesOf(uint32_t largest) {
  const uint32_t scales = Fp4ScalePair(largest);
  if constexpr (!kSimulate) return {.stored = scales, .coarse = 0};
  const uint32_t rounded = RoundedFp4ScalePair(largest);
  return {.stored = rounded, .coarse = scales - rounded};
}

// How e2m1 codes of a group come from magnitudes x: as sums of BF16, which keep eight bits, so that
// sums from 128 on round to whole numbers, those from 256 on to multiples of two, those from 512 on
// of four. With y = x / scale, the bits of 128 + 2 y count codes up to y = 2. Those of 504 + 2 y do
// so from there on, where a code is 1 of y and, beyond y = 4, 2 of it; below they are larger than
// the code. What is in both halves of a word:
struct E2m1Lines {
  uint32_t slope;  // 2 / scale
  // Where values below 2 lie at whole numbers, codes 0, 2 and 4, their sums start at 256 instead of
  // 128, so that they lose all below two, and this takes it back.
  uint32_t start;
  uint32_t back;
};

// Of half 0 or 1 of a pair of groups.
__device__ inline E2m1Lines LinesOf(const Fp4Scales& scales, int half) {
  return {.slope = SplatHalf(0x7f807f80u - scales.stored, half),
          .start = SplatHalf(0x43004300u + scales.coarse, half),
          .back = SplatHalf(scales.coarse * 0x186, half)};  // of 0x80: -128
}

// The codes of two magnitudes, each in the lowest byte of its half.
template <bool kSimulate>
__device__ inline uint32_t EncodeE2m1Pair(__nv_bfloat162 x, const E2m1Lines& lines) {
  const auto both = [](float value) { return AsBf16x2(SplatBf16(value)); };
  // From code 2 of the second sums, 0x43fc, to that of the first, 0x4302, modulo 2^16.
  constexpr uint32_t kToFirst = 0xff06ff06u;
  const __nv_bfloat162 slope = AsBf16x2(lines.slope);
  const __nv_bfloat162 second = __hfma2(x, slope, both(504));
  __nv_bfloat162 first = __hfma2(x, slope, kSimulate ? AsBf16x2(lines.start) : both(128));
  if constexpr (kSimulate) first = __hfma2(first, both(1), AsBf16x2(lines.back));
  return __viaddmin_u16x2(AsWord(second), kToFirst, AsWord(first));
}

// Eight e2m1 codes of a chunk, the first in the lowest nibble.
template <bool kSimulate>
__device__ inline uint32_t EncodeE2m1Chunk(const uint32_t (&words)[4], const E2m1Lines& lines) {
  uint32_t codes[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    codes[k] = EncodeE2m1Pair<kSimulate>(__habs2(AsBf16x2(words[k])), lines);
  }
  const uint32_t even = GatherLowBytes(codes);
  const uint32_t odd = GatherLowBytes(codes + 2);
  const uint32_t signs = Select(0x0f0f0f0fu, GatherSigns(words), GatherSigns(words + 2));
  return (signs & 0x88888888u) | (even + 16 * odd);
}

// Largest magnitude of a group that is a lane's own, in both halves.
__device__ inline uint32_t LargestOfGroup(const uint32_t (&words)[4][4]) {
  const auto larger = [](uint32_t than, const uint32_t(&of)[4]) {
    const auto magnitude = [&](int i) { return AsWord(__habs2(AsBf16x2(of[i]))); };
    const uint32_t two = MaxPair(MaxPair(magnitude(0), magnitude(1)), than);
    return MaxPair(MaxPair(magnitude(2), magnitude(3)), two);
  };
  const uint32_t lower = larger(MaxMagnitudePair(words[0]), words[1]);
  const uint32_t halves = larger(larger(lower, words[2]), words[3]);
  return MaxPair(halves, __byte_perm(halves, 0, 0x1032));
}

template <bool kSimulate>
struct IndexWriter<EntryFormat::kFp4Index, kSimulate> {
  using Tile = EntryTile<128>;

  __device__ static void Store(const Tile& tile, const uint32_t (&largest)[2],
                               const EntryPlace& place, int entries_per_page) {
    uint32_t codes[Tile::kChunks];
    const Fp4Scales scales[2] = {ScalesOf<kSimulate>(largest[0]), ScalesOf<kSimulate>(largest[1])};
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      const E2m1Lines lines = LinesOf(scales[chunk / 2], chunk % 2);
      codes[chunk] = EncodeE2m1Chunk<kSimulate>(tile.words[chunk], lines);
    }
    std::byte* values = place.page + place.index * 64;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      StoreStreaming(
          reinterpret_cast<uint32_t*>(values + Tile::Channel(0) / 2 + Tile::Step(chunk) / 2),
          codes[chunk]);
    }
    if (Tile::LaneOfRow() == 0) {
      // Exponent fields.
      reinterpret_cast<uint32_t*>(place.page + entries_per_page * 64)[place.index] =
          __byte_perm(scales[0].stored >> 7, scales[1].stored >> 7, 0x6420);
    }
  }
};

template <EntryFormat kFormat, Numerics kNumerics>
__device__ inline void StoreRows(EntryTile<128>& tile, const EntryOperands<128>& operands,
                                 const PagedPool& pool, const EntryPlace& place) {
  constexpr bool kSimulate = kNumerics == Numerics::kReference;
  HadamardRow(tile, operands);
  uint32_t largest[2] = {};
  if constexpr (kSimulate || kFormat != EntryFormat::kBf16) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[i] = tile.LargestOfChunks(2 * i);
      if constexpr (kSimulate && kFormat != EntryFormat::kFp4Index) {
        largest[i] = SnapToE2m1(tile, 2 * i, largest[i]);
      }
    }
  }
  if (place.index >= 0) {
    IndexWriter<kFormat, kSimulate>::Store(tile, largest, place, pool.entries_per_page);
  }
}

}  // namespace baton::kernels::cuda
