#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/entry_target.cuh"
#include "kernels/cuda/device/index_tile.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/rotation.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/rope.h"

// Sixteen index keys of a warp, from BF16 rows to what FP4 codes are made of. Norms of the eight
// that index_tile.cuh takes throw half of their products away; and here a lane ends up with the
// whole of an FP4 group, so that its scale takes no other lane and its codes are one store.
//
// Lane 4 g + t holds words of rows g and g + 8, as operands and sums of mma lie: channels 2 t and
// 2 t + 1 of a piece of eight. The columns of the Hadamard matrix come in an order that moves
// channels to where they are wanted. Of the seven bits of a channel's number,
//
//               6    5    4    3    2    1    0
//   an input    [---- piece ----]   [- t -]  half of a word
//   an output   [- t -]  [signs]  half  [product]
//
// Products sum over bits 6, 5, 2, 1 and 0 of inputs whose bits 4 and 3 are the same. The four of
// them, added with the signs of an output's bits 4 and 3, are that output; the four outputs that
// share them take 8 products where sums over all inputs would take 32.

namespace baton::kernels::cuda {

struct IndexRows {
  static constexpr int kRows = 16;
  static constexpr int kChannels = 128;
  static constexpr int kPieces = kChannels / 8;
  static constexpr int kRopePiece = kPieces - kRopeDim / 8;  // first rotated one

  uint32_t words[kPieces][2];  // of row g, of row g + 8

  __device__ static int Row() { return threadIdx.x % 32 / 4; }  // g
  __device__ static int Quarter() { return threadIdx.x % 4; }   // t

  // Pieces are multiplied in pairs that differ in a channel's bit 5 alone: pair i by bits 4 and 3,
  // then by bit 6.
  static constexpr int kBit5 = 4;  // of a piece
  static constexpr int kBit6 = 8;
  __device__ static constexpr int FirstOfPair(int i) { return i % 4 + i / 4 * kBit6; }
  // As a left operand.
  struct Operand {
    uint32_t words[4];
  };
  __device__ Operand Pair(int first) const {
    const uint32_t(&a)[2] = words[first];
    const uint32_t(&b)[2] = words[first + kBit5];
    return {{a[0], a[1], b[0], b[1]}};
  }
};

// Rows in shared memory, from where lanes get their words.
class RowFragments {
 public:
  // Bytes from row to row; 16 of them keep LoadMatrices off one bank.
  static constexpr int kStride = 2 * IndexRows::kChannels + 16;
  struct alignas(16) Buffer {
    std::byte rows[IndexRows::kRows][kStride];
  };

  __device__ explicit RowFragments(const Buffer& buffer) {
    constexpr int kNextOfPair = 16 * IndexRows::kBit5;  // bytes
    const int lane = threadIdx.x % 32;
    rows_ = Held(SharedAddress(&buffer.rows[lane % 16][lane / 16 * kNextOfPair]));
    columns_ =
        Held(SharedAddress(&buffer.rows[lane % 8 + lane / 16 * 8][lane / 8 % 2 * kNextOfPair]));
  }

  __device__ void Load(IndexRows& rows) const {
#pragma unroll
    for (int i = 0; i < IndexRows::kPieces / 2; ++i) {
      const int piece = IndexRows::FirstOfPair(i);
      uint32_t words[4];
      LoadMatrices(rows_ + 16 * piece, words);
#pragma unroll
      for (int k = 0; k < 4; ++k) rows.words[piece + k / 2 * IndexRows::kBit5][k % 2] = words[k];
    }
  }
  // A pair of pieces as right operands: of the first eight rows, of the others.
  __device__ void LoadColumns(int piece, uint32_t (&columns)[2][2]) const {
    uint32_t words[4];
    LoadMatrices(columns_ + 16 * piece, words);
#pragma unroll
    for (int k = 0; k < 4; ++k) columns[k / 2][k % 2] = words[k];
  }

 private:
  uint32_t rows_;
  uint32_t columns_;
};

// What the steps need besides the rows, in shared memory, by lane.
struct IndexRowOperands {
  // Of four pieces each: rows times this diagonal are weighted channels, exact in FP32.
  uint4 weights[IndexRows::kPieces / 4][32];
  // Of the lane's pairs in four rotated pieces each.
  float4 frequencies[2][32];
  // Of the transform, by bits 1 and 0 of outputs: two words of inputs whose bit 6 is 0, then of the
  // others.
  uint4 signs[4][32];
  uint4 ones[32];  // a diagonal, in the first word

  // By one warp, before a barrier.
  __device__ void Fill(const BFloat16* weight, const RopeFrequencies& rope_frequencies) {
    const int lane = threadIdx.x % 32;
    const int t = IndexRows::Quarter();
    const int column = lane / 4;
    uint32_t own = 0;  // halves of the lane's words that lie on the diagonal
    if (column / 2 == t) own = column % 2 == 0 ? 0x0000ffffu : 0xffff0000u;
    ones[lane] = {0x3f803f80u & own, 0, 0, 0};
    const auto* pairs = reinterpret_cast<const uint32_t*>(weight) + t;
#pragma unroll
    for (int i = 0; i < IndexRows::kPieces / 4; ++i) {
      const uint32_t* p = pairs + 16 * i;
      weights[i][lane] = {p[0] & own, p[4] & own, p[8] & own, p[12] & own};
    }
    const float* f = rope_frequencies.data() + t;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      frequencies[i][lane] = {f[16 * i], f[16 * i + 4], f[16 * i + 8], f[16 * i + 12]};
    }
    // Columns are outputs by bits 6 and 5 (column / 2) and by bit 2. Inputs differ in bits 2 and 1
    // by lane, in bit 0 by half of a word, in bits 6 and 5 by word.
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      constexpr uint32_t kBoth = 0x80008000u;
      const int low = column % 2 * 4 + j;  // bits 2 to 0 of the output
      const uint32_t negative = __popc(t & low / 2) % 2;
      const uint32_t first = 0x3f803f80u ^ negative * kBoth ^ static_cast<uint32_t>(low) << 31;
      const uint32_t bit5 = column / 2 % 2 * kBoth;
      const uint32_t bit6 = column / 4 * kBoth;
      signs[j][lane] = {first, first ^ bit5, first ^ bit6, first ^ bit5 ^ bit6};
    }
  }
};

// Those of the calling lane: their address takes one register.
class LaneOperands {
 public:
  __device__ explicit LaneOperands(const IndexRowOperands& operands)
      : address_(Held(SharedAddress(operands.weights[0] + threadIdx.x % 32))) {}
  __device__ uint4 Weights(int i) const { return At(offsetof(IndexRowOperands, weights), i); }
  __device__ float4 Frequencies(int i) const {
    const uint4 v = At(offsetof(IndexRowOperands, frequencies), i);
    return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
  }
  __device__ uint4 Signs(int j) const { return At(offsetof(IndexRowOperands, signs), j); }
  __device__ uint32_t Ones() const { return At(offsetof(IndexRowOperands, ones), 0).x; }

 private:
  __device__ uint4 At(size_t array, int i) const {
    return LoadShared16(address_ + static_cast<uint32_t>(array) + i * 512);
  }

  uint32_t address_;
};

// x * rsqrt(mean(x^2) + eps) * weight, each row by its own mean.
__device__ inline void NormalizeRows(IndexRows& rows, const RowFragments& fragments,
                                     const LaneOperands& operands, float eps) {
  // Sums of squares are the diagonal of the rows' products with themselves: with the first eight
  // rows in the upper half of the sums, with the others in the lower one.
  float low[2][4] = {};
  float high[2][4] = {};
#pragma unroll
  for (int i = 0; i < IndexRows::kPieces / 2; ++i) {
    const int piece = IndexRows::FirstOfPair(i);
    uint32_t columns[2][2];
    fragments.LoadColumns(piece, columns);
    MultiplyAdd(low[i % 2], rows.Pair(piece).words, columns[0]);
    MultiplyAdd(high[i % 2], rows.Pair(piece).words, columns[1]);
  }
  // Row g's lies with lane 4 g + g / 2, column g % 2 of its pair.
  const int g = IndexRows::Row();
  const auto factor = [&](float even, float odd) {
    const float sum = __shfl_sync(kFullWarp, g % 2 != 0 ? odd : even, 4 * g + g / 2);
    return InverseRoot(sum / IndexRows::kChannels + eps);
  };
  const float factors[2] = {factor(low[0][0] + low[1][0], low[0][1] + low[1][1]),
                            factor(high[0][2] + high[1][2], high[0][3] + high[1][3])};
#pragma unroll
  for (int i = 0; i < IndexRows::kPieces / 4; ++i) {
    const uint4 loaded = operands.Weights(i);
    const uint32_t weights[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t(&pair)[2] = rows.words[4 * i + k];
      float v[4] = {};
      MultiplyAdd(v, pair, weights[k]);
      pair[0] = PackBf16(v[0] * factors[0], v[1] * factors[0]);
      pair[1] = PackBf16(v[2] * factors[1], v[3] * factors[1]);
    }
  }
}

// Positions are those of rows g and g + 8.
__device__ inline void RotateRows(IndexRows& rows, const LaneOperands& operands,
                                  const float (&positions)[2]) {
  const uint32_t ones = operands.Ones();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 f = operands.Frequencies(i);
    const float frequencies[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t(&pair)[2] = rows.words[IndexRows::kRopePiece + 4 * i + k];
      float v[4] = {};  // unpacked by a product with 1
      MultiplyAdd(v, pair, ones);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const CosSin angle = CosSinOf(__fmul_rn(positions[row], frequencies[k]));
        const float a = v[2 * row];
        const float b = v[2 * row + 1];
        pair[row] = PackBf16(__fmaf_rn(a, angle.cosine, -__fmul_rn(b, angle.sine)),
                             __fmaf_rn(a, angle.sine, __fmul_rn(b, angle.cosine)));
      }
    }
  }
}

// Hadamard128 of the rows: FP4 group t of row g and of row g + 8, as the words of eight channels
// that EncodeE2m1Chunk takes.
using Fp4Group = uint32_t[4][4];
__device__ inline void HadamardRows(const IndexRows& rows, const LaneOperands& operands,
                                    Fp4Group (&groups)[2]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint4 s = operands.Signs(j);
    const uint32_t signs[2][2] = {{s.x, s.y}, {s.z, s.w}};
    float sums[4][4] = {};  // of inputs by bits 4 and 3
#pragma unroll
    for (int input = 0; input < 4; ++input) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int piece = IndexRows::FirstOfPair(input + 4 * half);
        MultiplyAdd(sums[input], rows.Pair(piece).words, signs[half]);
      }
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float outputs[4][2];  // by bits 4 and 3, then by bit 2
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = 2 * row + i;
        const float plus = kHadamardNorm * (sums[0][k] + sums[1][k]);
        const float minus = kHadamardNorm * (sums[0][k] - sums[1][k]);
        const float high_plus = sums[2][k] + sums[3][k];
        const float high_minus = sums[2][k] - sums[3][k];
        outputs[0][i] = __fmaf_rn(kHadamardNorm, high_plus, plus);
        outputs[1][i] = __fmaf_rn(kHadamardNorm, high_minus, minus);
        outputs[2][i] = __fmaf_rn(-kHadamardNorm, high_plus, plus);
        outputs[3][i] = __fmaf_rn(-kHadamardNorm, high_minus, minus);
      }
      // Words stand as EncodeE2m1Chunk gathers nibbles from them: 0, 2, 1, 3.
#pragma unroll
      for (int chunk = 0; chunk < 4; ++chunk) {
        groups[row][chunk][j % 2 * 2 + j / 2] = PackBf16(outputs[chunk][0], outputs[chunk][1]);
      }
    }
  }
}

}  // namespace baton::kernels::cuda
