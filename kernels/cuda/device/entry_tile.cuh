#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/device/hadamard.cuh"
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
      Vector16 value = {0, 0, 0, 0};
      if (row != nullptr) value = Load16(row + Channel(chunk));
      words[i][chunk][0] = value.x;
      words[i][chunk][1] = value.y;
      words[i][chunk][2] = value.z;
      words[i][chunk][3] = value.w;
    }
  }

  __device__ void Store(int i, BFloat16* row) const {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) StoreChunk(i, chunk, row + Channel(chunk));
  }
  __device__ void StoreChunk(int i, int chunk, void* target) const {
    const uint32_t* w = words[i][chunk];
    Store16(target, {w[0], w[1], w[2], w[3]});
  }

  // mean(x^2) in the order of the CPU's sum, hence to its bits: fused chains over channels 64
  // apart, then pairs at channel distance 16, 32, 8, 4, 2, 1.
  __device__ float MeanSquare(int i) const {
    constexpr int kParts = 8 / kLanes;  // halves of 64 channels that a lane holds: distance 32
    float sum[kParts][8];
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      float* part = sum[chunk % kParts];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint32_t pair = words[i][chunk][k / 2];
        const float v = k % 2 == 0 ? LowBf16(pair) : HighBf16(pair);
        part[k] = chunk < kParts ? __fmul_rn(v, v) : __fmaf_rn(v, v, part[k]);
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) AddAcrossLanes(sum[part], 2);
    if constexpr (kParts == 2) {
#pragma unroll
      for (int k = 0; k < 8; ++k) sum[0][k] += sum[1][k];
    } else {
      AddAcrossLanes(sum[0], 4);
    }
    AddAcrossLanes(sum[0], 1);
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2) {
#pragma unroll
      for (int k = 0; k < distance; ++k) sum[0][k] += sum[0][k + distance];
    }
    return sum[0][0] / kHeadDim;
  }

  // x * rsqrt(mean(x^2) + eps), times `weight` [kHeadDim] unless that is null.
  __device__ void Normalize(const BFloat16* weight, float eps) {
    float factor[kRowsPerLane];
#pragma unroll
    for (int i = 0; i < kRowsPerLane; ++i) {
      factor[i] = __fdiv_rn(1.0f, __fsqrt_rn(MeanSquare(i) + eps));
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      constexpr uint32_t kOnes = 0x3f803f80u;
      Vector16 w = {kOnes, kOnes, kOnes, kOnes};
      if (weight != nullptr) w = Load16(weight + Channel(chunk));
      const uint32_t weights[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < kRowsPerLane; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const uint32_t pair = words[i][chunk][k];
          words[i][chunk][k] =
              PackBf16(__fmul_rn(LowBf16(weights[k]), __fmul_rn(LowBf16(pair), factor[i])),
                       __fmul_rn(HighBf16(weights[k]), __fmul_rn(HighBf16(pair), factor[i])));
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

  // Snaps a chunk, shared by the row's lanes, to a grid scaled by Fp8Scale (kMantissa 3) or
  // Fp4Scale (kMantissa 1) of its largest magnitude.
  template <int kMantissa, int kMinExponent>
  __device__ void SnapToGrid(int i, int chunk) {
    const float amax = LaneMax<kLanes>(MaxMagnitude(words[i][chunk]));
    const float scale = kMantissa == 3 ? Fp8Scale(amax) : Fp4Scale(amax);
    const uint32_t up = SplatBf16(scale);
    const uint32_t down = SplatBf16(InverseOfPowerOfTwo(scale));
#pragma unroll
    for (uint32_t& pair : words[i][chunk]) {
      pair = MultiplyPair(RoundPairToGrid<kMantissa, kMinExponent>(MultiplyPair(pair, down)), up);
    }
  }

 private:
  __device__ static void AddAcrossLanes(float (&values)[8], int distance) {
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(kFullWarp, value, distance);
  }
};

// Hadamard128 of all 16 rows, BF16 in and out. Four of the seven index bits (channel bits 0, 1, 3
// and 4) are a product with a 16 x 16 matrix of +-1 on the tensor cores; the other three (2, 5, 6)
// are butterflies between words that a lane holds anyway. No lane exchanges data.
__device__ inline void HadamardRows(EntryTile<128>& tile) {
  using Tile = EntryTile<128>;
  const int lane = threadIdx.x % 32;
  // Operand B: rows are channels (lane bits, bit 1, bit 0), columns outputs in the same order.
  const uint32_t agreement = __popc((lane % 4) & (lane / 8)) % 2;
  const uint32_t odd_output = lane / 4 % 2;
  const auto signs = [&](uint32_t negative) {
    const uint32_t first = (agreement ^ negative) << 15;
    const uint32_t second = (agreement ^ negative ^ odd_output) << 31;
    return 0x3f803f80u ^ first ^ second;
  };
  uint32_t result[2][Tile::kChunks][4];
#pragma unroll
  for (int output = 0; output < 2; ++output) {  // bit 1 of the output channel
    const uint32_t b0 = signs(0);
    const uint32_t b1 = signs(output);
    float sums[4][8];  // [value of a fragment][bit 2 of the channel, chunk]
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      const int chunk = block / 2;
      const int half = block % 2 * 2;
      float d[4];
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(tile.words[0][chunk][half]), "r"(tile.words[1][chunk][half]),
            "r"(tile.words[0][chunk][half + 1]), "r"(tile.words[1][chunk][half + 1]), "r"(b0),
            "r"(b1), "f"(0.0f));
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[k][block] = d[k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) HadamardInThread(sums[k]);
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      constexpr float kNorm = 0.08838834764831845f;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        result[i][block / 2][block % 2 * 2 + output] = PackBf16(
            __fmul_rn(sums[2 * i][block], kNorm), __fmul_rn(sums[2 * i + 1][block], kNorm));
      }
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
