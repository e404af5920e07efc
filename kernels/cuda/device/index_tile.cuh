#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/device/entry_tile.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/rotation.cuh"
#include "kernels/cuda/device/vector.cuh"

// Norm and Hadamard transform of index keys, on the tensor cores. The four words of a chunk of a
// tile are a fragment of mma as they lie: of two rows, one holding channel pairs 0 and 2, the other
// pairs 1 and 3, of which pairs 0 and 1 are the lower half of k. So channel bits 3 and 4 (the
// lane), 2 and 0 are summed, and bit 1 tells the two rows apart. Results lie as words did.

namespace baton::kernels::cuda {

// d += chunk x b, [16, 16] x [16, 8].
__device__ inline void MultiplyAdd(float (&d)[4], const uint32_t (&chunk)[4],
                                   const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(chunk[0]), "r"(chunk[1]), "r"(chunk[2]), "r"(chunk[3]), "r"(b[0]), "r"(b[1]));
}
// The same with half of a chunk, words 0 and 1 or 2 and 3: [16, 8] x [8, 8].
__device__ inline void MultiplyAdd(float (&d)[4], const uint32_t* half, uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(half[0]), "r"(half[1]), "r"(b));
}

// mean(x^2) of a lane's row: the diagonal of the rows' products with themselves. A word is also a
// fragment of the transposed rows.
__device__ inline float MeanSquare(const EntryTile<128>& tile) {
  float even[4] = {};  // of words 0 and 2 with all rows: the upper half holds those
  float odd[4] = {};   // of words 1 and 3: the lower half
#pragma unroll
  for (const uint32_t(&chunk)[4] : tile.words) {
    MultiplyAdd(even, chunk, chunk[0]);
    MultiplyAdd(odd, chunk, chunk[1]);
    MultiplyAdd(even, chunk + 2, chunk[2]);
    MultiplyAdd(odd, chunk + 2, chunk[3]);
  }
  // Row r lies with lane 4 r + r / 2, column r % 2 of its pair.
  const int row = threadIdx.x % 32 / 4;
  const float sum = row % 2 != 0 ? even[1] + odd[3] : even[0] + odd[2];
  return __shfl_sync(kFullWarp, sum, 4 * row + row / 2) / 128;
}

// Matrices that rows of 128 channels are multiplied by, as lanes hold them, and frequencies. They
// are kept whole, not put together from what they have in common: operands are pairs of registers,
// and copies would cost as much as the products.
template <>
struct EntryOperands<128> {
  // Of each word of a chunk: rows times this diagonal are weighted channels, exact in FP32.
  uint4 weights[EntryTile<128>::kChunks][32];
  // Hadamard signs of the first and of the second pair of words that are computed, each a pair of
  // words, and the opposite ones.
  uint4 signs[32];
  uint4 opposite[32];
  uint32_t ones[32];  // a diagonal
  alignas(16) float frequencies[kRopePairs];

  template <EntryFormat kFormat>
  __device__ void Fill(const BFloat16* weight, const RopeFrequencies& rope_frequencies) {
    const int lane = threadIdx.x % 32;
    const int column = lane / 4;
    uint32_t own = 0;  // halves of the lane's words that lie on the diagonal
    if (column / 2 == lane % 4) own = column % 2 == 0 ? 0x0000ffffu : 0xffff0000u;
    ones[lane] = 0x3f803f80u & own;
#pragma unroll
    for (int chunk = 0; chunk < EntryTile<128>::kChunks; ++chunk) {
      const Vector16 w = Load16(weight + EntryTile<128>::Channel(chunk));
      weights[chunk][lane] = {w.x & own, w.y & own, w.z & own, w.w & own};
    }
    // Column n is output bits 3 and 4 (n / 2) and one more (n % 2). Inputs differ in these bits by
    // lane, in bit 0 by half of a word, in bit 2 by word.
    constexpr uint32_t kBoth = 0x80008000u;
    constexpr uint32_t kHigh = 0x80000000u;
    const uint32_t negative = __popc((lane % 4) & (column / 2)) % 2;
    const uint32_t first = 0x3f803f80u ^ negative * kBoth;
    if constexpr (SplitsWords<kFormat>()) {
      const uint32_t second = first ^ column % 2 * kBoth;
      signs[lane] = {first, second, first ^ kHigh, second ^ kHigh};
    } else {
      const uint32_t second = first ^ column % 2 * kHigh;
      signs[lane] = {second, second, second, second ^ kBoth};
    }
    const uint4 plus = signs[lane];
    opposite[lane] = {plus.x ^ kBoth, plus.y ^ kBoth, plus.z ^ kBoth, plus.w ^ kBoth};
    frequencies[lane] = rope_frequencies[lane];
  }

  // Whether words of transformed rows hold channels 4 apart, (0, 4), (2, 6), (1, 5), (3, 7), and
  // not neighbours: codes that are to lie in nibbles are thus gathered faster.
  template <EntryFormat kFormat>
  static constexpr bool SplitsWords() {
    return kFormat == EntryFormat::kFp4Index;
  }
};

// Of a number that is not subnormal.
__device__ inline float InverseRoot(float value) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(value));
  return root;
}

__device__ inline void NormalizeRows(EntryTile<128>& tile, const EntryOperands<128>& operands,
                                     float eps) {
  const int lane = threadIdx.x % 32;
  const float factor = InverseRoot(MeanSquare(tile) + eps);
#pragma unroll
  for (int chunk = 0; chunk < EntryTile<128>::kChunks; ++chunk) {
    const uint4 loaded = operands.weights[chunk][lane];
    const uint32_t weights[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
    uint32_t(&words)[4] = tile.words[chunk];
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      float even[4] = {};
      float odd[4] = {};
      MultiplyAdd(even, words + k, weights[k]);
      MultiplyAdd(odd, words + k, weights[k + 1]);
      words[k] = PackBf16(even[0] * factor, even[1] * factor);
      words[k + 1] = PackBf16(odd[2] * factor, odd[3] * factor);
    }
  }
}

// The four values of words 0 and 1 of `pair`: a product with 1, which takes one instruction. All
// values of a row become NaN where one is.
__device__ inline void Unpack(const EntryOperands<128>& operands, const uint32_t* pair,
                              float (&values)[4]) {
#pragma unroll
  for (float& value : values) value = 0;
  MultiplyAdd(values, pair, operands.ones[threadIdx.x % 32]);
}

__device__ inline EntryTile<128>::Rotation RotationOf(const EntryOperands<128>& operands,
                                                      const EntryRope& rope, int entry) {
  using Tile = EntryTile<128>;
  Tile::Rotation rotation;
  const auto position = static_cast<float>(entry * rope.step);
#pragma unroll
  for (int chunk = 0; chunk < Tile::kChunks - Tile::kRopeChunk; ++chunk) {
    const float4 f = *reinterpret_cast<const float4*>(operands.frequencies +
                                                      (Tile::Channel(0) + Tile::Step(chunk)) / 2);
    const CosSin x = CosSinOf(__fmul_rn(position, f.x));
    const CosSin y = CosSinOf(__fmul_rn(position, f.y));
    const CosSin z = CosSinOf(__fmul_rn(position, f.z));
    const CosSin w = CosSinOf(__fmul_rn(position, f.w));
    rotation.cosines[chunk] = {x.cosine, y.cosine, z.cosine, w.cosine};
    rotation.sines[chunk] = {x.sine, y.sine, z.sine, w.sine};
  }
  return rotation;
}

__device__ inline void RotateRows(EntryTile<128>& tile, const EntryOperands<128>& operands,
                                  const EntryTile<128>::Rotation& rotation) {
  using Tile = EntryTile<128>;
#pragma unroll
  for (int chunk = Tile::kRopeChunk; chunk < Tile::kChunks; ++chunk) {
    const float4& c = rotation.cosines[chunk - Tile::kRopeChunk];
    const float4& s = rotation.sines[chunk - Tile::kRopeChunk];
    const float cosine[4] = {c.x, c.y, c.z, c.w};
    const float sine[4] = {s.x, s.y, s.z, s.w};
    uint32_t(&words)[4] = tile.words[chunk];
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      float v[4];
      Unpack(operands, words + k, v);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float a = v[2 * i];
        const float b = v[2 * i + 1];
        words[k + i] = PackBf16(__fmaf_rn(a, cosine[k + i], -__fmul_rn(b, sine[k + i])),
                                __fmaf_rn(a, sine[k + i], __fmul_rn(b, cosine[k + i])));
      }
    }
  }
}

inline constexpr float kHadamardNorm = 0.08838834764831845f;  // 128^(-1/2)

// Hadamard128 of a row of every lane, BF16 in and out. Six of the seven index bits are a product
// with a matrix of +-1; bit 1 is one addition. No lane exchanges data: outputs lie where the inputs
// did, or split (see EntryOperands).
__device__ inline void HadamardRow(EntryTile<128>& tile, const EntryOperands<128>& operands) {
  using Tile = EntryTile<128>;
  const uint4 signs = operands.signs[threadIdx.x % 32];
  const uint4 opposite = operands.opposite[threadIdx.x % 32];
  const uint32_t matrices[2][2][2] = {{{signs.x, signs.y}, {signs.z, signs.w}},
                                      {{opposite.x, opposite.y}, {opposite.z, opposite.w}}};
  uint32_t result[Tile::kChunks][4];
  // In this order few of the sums that outputs share are held at a time.
#pragma unroll
  for (int output = 0; output < 2 * Tile::kChunks; ++output) {
    const int pair = output / 2 % 2;                // of words
    const int chunk = output % 2 * 2 + output / 4;  // bits 5 and 6
    float sums[4] = {};
#pragma unroll
    for (int input = 0; input < Tile::kChunks; ++input) {
      const int odd = ((input & chunk) ^ (input & chunk) / 2) & 1;
      MultiplyAdd(sums, tile.words[input], matrices[odd][pair]);
    }
    const float low = kHadamardNorm * sums[0];
    const float high = kHadamardNorm * sums[1];
    result[chunk][2 * pair] =
        PackBf16(__fmaf_rn(kHadamardNorm, sums[2], low), __fmaf_rn(kHadamardNorm, sums[3], high));
    result[chunk][2 * pair + 1] =
        PackBf16(__fmaf_rn(-kHadamardNorm, sums[2], low), __fmaf_rn(-kHadamardNorm, sums[3], high));
  }
#pragma unroll
  for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
#pragma unroll
    for (int k = 0; k < 4; ++k) tile.words[chunk][k] = result[chunk][k];
  }
}

}  // namespace baton::kernels::cuda
