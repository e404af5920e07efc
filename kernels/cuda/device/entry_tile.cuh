#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/rope.h"

namespace baton::kernels::cuda {

// Rows of one head, BF16, as a warp holds them: 4 rows of 512 values on 8 lanes each, or 16 rows of
// 128 values on 4 lanes each, two rows a lane. A chunk is 8 channels of a lane, 16 bytes; chunk
// after chunk, the lanes of a row cover consecutive channels, so that accesses coalesce, a
// quantisation group is one chunk of all the row's lanes, and a 16 x 16 block of 128-channel rows
// is an operand of mma as it lies. Values are BF16 between steps, as the ops define.
template <int kHeadDim>
struct EntryTile {
  static_assert(kHeadDim == 128 || kHeadDim == 512);
  static constexpr int kLanes = kHeadDim == 128 ? 4 : 8;  // that share a row
  static constexpr int kRowStep = 32 / kLanes;            // between rows of a lane
  static constexpr int kRowsPerLane = kHeadDim == 128 ? 2 : 1;
  static constexpr int kRows = kRowStep * kRowsPerLane;                 // of a warp
  static constexpr int kChunks = kHeadDim / (8 * kLanes);               // of a lane and row
  static constexpr int kRopeChunk = kChunks - kRopeDim / (8 * kLanes);  // first rotated one

  uint32_t words[kRowsPerLane][kChunks][4];

  __device__ static int LaneOfRow() { return threadIdx.x % kLanes; }
  // Which of the warp's rows is row `i` of this lane.
  __device__ static int Row(int i) { return threadIdx.x % 32 / kLanes + i * kRowStep; }
  __device__ static int Channel(int chunk) { return (chunk * kLanes + LaneOfRow()) * 8; }

  // Zeros where `row` is null.
  __device__ void Load(int i, const BFloat16* row) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      SetChunk(i, chunk, row != nullptr ? Load16(row + Channel(chunk)) : Vector16{0, 0, 0, 0});
    }
  }
  __device__ void SetChunk(int i, int chunk, const Vector16& value) {
    words[i][chunk][0] = value.x;
    words[i][chunk][1] = value.y;
    words[i][chunk][2] = value.z;
    words[i][chunk][3] = value.w;
  }

  __device__ void Store(int i, BFloat16* row) const {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) StoreChunk(i, chunk, row + Channel(chunk));
  }
  __device__ void StoreChunk(int i, int chunk, void* target) const {
    const uint32_t* w = words[i][chunk];
    Store16(target, {w[0], w[1], w[2], w[3]});
  }

  // mean(x^2) of the row of a lane, in the order of the CPU's sum, hence to its bits: fused chains
  // over channels 64 apart, then pairs at channel distance 16, 32, 8, 4, 2, 1.
  __device__ float MeanSquare() const {
    static_assert(kLanes == 8);
    float sum[8];
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint32_t pair = words[0][chunk][k / 2];
        const float v = k % 2 == 0 ? LowBf16(pair) : HighBf16(pair);
        sum[k] = chunk == 0 ? __fmul_rn(v, v) : __fmaf_rn(v, v, sum[k]);
      }
    }
    AddAcrossLanes(sum, 2);
    AddAcrossLanes(sum, 4);
    AddAcrossLanes(sum, 1);
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2) {
#pragma unroll
      for (int k = 0; k < distance; ++k) sum[k] += sum[k + distance];
    }
    return sum[0] / kHeadDim;
  }

  // x * rsqrt(mean + eps) of the lane's rows, and with kWeighted times `weight` [kHeadDim].
  template <bool kWeighted>
  __device__ void Normalize(const float (&mean)[kRowsPerLane], const BFloat16* weight, float eps) {
    float factor[kRowsPerLane];
#pragma unroll
    for (int i = 0; i < kRowsPerLane; ++i) {
      factor[i] = __fdiv_rn(1.0f, __fsqrt_rn(mean[i] + eps));
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Vector16 w = {};
      if constexpr (kWeighted) w = Load16(weight + Channel(chunk));
      const uint32_t weights[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < kRowsPerLane; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          uint32_t& pair = words[i][chunk][k];
          float low = __fmul_rn(LowBf16(pair), factor[i]);
          float high = __fmul_rn(HighBf16(pair), factor[i]);
          if constexpr (kWeighted) {
            low = __fmul_rn(LowBf16(weights[k]), low);
            high = __fmul_rn(HighBf16(weights[k]), high);
          }
          pair = PackBf16(low, high);
        }
      }
    }
  }

  // Rotates the last 64 channels; `rope` are the row's 32 cosines and 32 sines.
  __device__ void Rotate(int i, const float* rope) {
#pragma unroll
    for (int chunk = kRopeChunk; chunk < kChunks; ++chunk) {
      const int pair = (Channel(chunk) - (kHeadDim - kRopeDim)) / 2;
      RotateChunk(words[i][chunk], *reinterpret_cast<const float4*>(rope + pair),
                  *reinterpret_cast<const float4*>(rope + kRopePairs + pair));
    }
  }

  __device__ static void RotateChunk(uint32_t (&chunk)[4], const float4& cosines,
                                     const float4& sines) {
    const float cosine[4] = {cosines.x, cosines.y, cosines.z, cosines.w};
    const float sine[4] = {sines.x, sines.y, sines.z, sines.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float a = LowBf16(chunk[k]);
      const float b = HighBf16(chunk[k]);
      chunk[k] = PackBf16(__fsub_rn(__fmul_rn(a, cosine[k]), __fmul_rn(b, sine[k])),
                          __fadd_rn(__fmul_rn(a, sine[k]), __fmul_rn(b, cosine[k])));
    }
  }

  // Largest magnitude of a chunk of all the row's lanes; NaN wins.
  __device__ float LargestOfChunk(int i, int chunk) const {
    return LargerHalf(LaneMaxPair<kLanes>(MaxMagnitudePair(words[i][chunk])));
  }

  // Snaps a chunk to a grid scaled by Fp8Scale (kMantissa 3) or Fp4Scale (kMantissa 1) of `amax`,
  // its largest magnitude, and returns what becomes of that.
  template <int kMantissa>
  __device__ float SnapToGrid(int i, int chunk, float amax) {
    constexpr float kSmallestNormal = kMantissa == 3 ? 0x1p-6f : 1.0f;
    const float scale = kMantissa == 3 ? Fp8Scale(amax) : Fp4Scale(amax);
    const uint32_t lowest = SplatBf16(scale * kSmallestNormal);
#pragma unroll
    for (uint32_t& pair : words[i][chunk]) pair = RoundPairToGrid<kMantissa>(pair, lowest);
    return HighBf16(RoundPairToGrid<kMantissa>(__float_as_uint(amax), lowest));
  }

 private:
  __device__ static void AddAcrossLanes(float (&values)[8], int distance) {
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(kFullWarp, value, distance);
  }
};

__device__ inline void MeanSquares(const EntryTile<512>& tile, float (&mean)[1]) {
  mean[0] = tile.MeanSquare();
}

__device__ inline void MultiplyAdd(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                   uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Adds to d the product of 16 channels of all rows with a matrix [16, 8]: half `half` of a chunk
// of every lane is the operand's fragment as it lies, its k being lane bits 0 and 1 (channel bits 3
// and 4) and channel bits 1 and 0.
__device__ inline void MultiplyAddRows(float (&d)[4], const EntryTile<128>& tile, int chunk,
                                       int half, uint32_t b0, uint32_t b1) {
  const auto& words = tile.words;
  MultiplyAdd(d, words[0][chunk][2 * half], words[1][chunk][2 * half],
              words[0][chunk][2 * half + 1], words[1][chunk][2 * half + 1], b0, b1);
}

// mean(x^2) of the lane's two rows: the diagonal of the rows' products with themselves. A fragment
// of rows 0 to 7 is also the fragment of their transpose.
__device__ inline void MeanSquares(const EntryTile<128>& tile, float (&mean)[2]) {
  const int lane = threadIdx.x % 32;
  float d[2][4] = {};
#pragma unroll
  for (int chunk = 0; chunk < EntryTile<128>::kChunks; ++chunk) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t(&words)[4] = tile.words[i][chunk];
        MultiplyAddRows(d[i], tile, chunk, half, words[2 * half], words[2 * half + 1]);
      }
    }
  }
  // Row r of a half lies with lane 4 r + r / 2, column r % 2 of its pair.
  const int row = lane / 4;
  const bool odd = row % 2 != 0;
  const int owner = 4 * row + row / 2;
  mean[0] = __shfl_sync(kFullWarp, odd ? d[0][1] : d[0][0], owner) / 128;
  mean[1] = __shfl_sync(kFullWarp, odd ? d[1][3] : d[1][2], owner) / 128;
}

// Hadamard128 of all 16 rows, BF16 in and out. Six of the seven index bits are a product with a
// matrix of +-1 on the tensor cores; the last, between halves of the row, is one addition. No lane
// exchanges data: outputs lie as the inputs did.
__device__ inline void HadamardRows(EntryTile<128>& tile) {
  using Tile = EntryTile<128>;
  constexpr uint32_t kSigns = 0x80008000u;
  const int lane = threadIdx.x % 32;
  // Operand column n = lane / 4 is output bits 3 and 4 (n / 2) and 0 (n % 2); this is its sign for
  // the lane's inputs with all other bits 0.
  const uint32_t negative = __popc((lane % 4) & (lane / 8)) % 2;
  const uint32_t plus =
      0x3f803f80u ^ negative << 15 ^ (negative ^ static_cast<uint32_t>(lane / 4 % 2)) << 31;
  const uint32_t minus = plus ^ kSigns;
  uint32_t result[2][Tile::kChunks][4];
#pragma unroll
  for (int output = 0; output < 8; ++output) {
    const int bit1 = output % 2;
    const int bit2 = output / 2 % 2;
    const int bit5 = output / 4;
    float sums[2][4] = {};
#pragma unroll
    for (int input = 0; input < 4; ++input) {  // bits 2 and 5
      const int half = input % 2;
      const int odd = (half & bit2) ^ (input / 2 & bit5);
#pragma unroll
      for (int bit6 = 0; bit6 < 2; ++bit6) {
        MultiplyAddRows(sums[bit6], tile, 2 * bit6 + input / 2, half, odd ? minus : plus,
                        odd ^ bit1 ? minus : plus);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      constexpr float kNorm = 0.08838834764831845f;
      const float* low = sums[0] + 2 * i;
      const float* high = sums[1] + 2 * i;
      const int word = 2 * bit2 + bit1;
      result[i][bit5][word] = PackBf16(kNorm * (low[0] + high[0]), kNorm * (low[1] + high[1]));
      result[i][2 + bit5][word] = PackBf16(kNorm * (low[0] - high[0]), kNorm * (low[1] - high[1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
#pragma unroll
      for (int k = 0; k < 4; ++k) tile.words[i][chunk][k] = result[i][chunk][k];
    }
  }
}

}  // namespace baton::kernels::cuda
