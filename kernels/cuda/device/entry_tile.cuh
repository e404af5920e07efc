#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/rope.h"
#include "kernels/rope.h"

namespace baton::kernels::cuda {

// Rows of one head, BF16, as a warp holds them: 4 rows of 512 values on 8 lanes each, or 8 rows of
// 128 values on 4 lanes each. A chunk is 8 channels of a lane, 16 bytes; chunk
// after chunk, the lanes of a row cover consecutive channels, so that accesses coalesce, a
// quantisation group is one chunk of all the row's lanes. Values are BF16 between steps, as the ops
// define.
template <int kHeadDim>
struct EntryTile {
  static_assert(kHeadDim == 128 || kHeadDim == 512);
  static constexpr int kLanes = kHeadDim == 128 ? 4 : 8;                // that share a row
  static constexpr int kRows = 32 / kLanes;                             // of a warp
  static constexpr int kChunks = kHeadDim / (8 * kLanes);               // of a lane
  static constexpr int kRopeChunk = kChunks - kRopeDim / (8 * kLanes);  // first rotated one

  uint32_t words[kChunks][4];

  __device__ static int LaneOfRow() { return threadIdx.x % kLanes; }
  // Which of the warp's rows is this lane's.
  __device__ static int Row() { return threadIdx.x % 32 / kLanes; }
  __device__ static int Channel(int chunk) { return Step(chunk) + LaneOfRow() * 8; }
  // From Channel(0): added last, it is part of an access and costs nothing.
  __device__ static constexpr int Step(int chunk) { return chunk * kLanes * 8; }

  // Zeros where `row` is null.
  __device__ void Load(const BFloat16* row) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      SetChunk(chunk,
               row != nullptr ? Load16(row + Channel(0) + Step(chunk)) : Vector16{0, 0, 0, 0});
    }
  }
  __device__ void SetChunk(int chunk, const Vector16& value) {
    words[chunk][0] = value.x;
    words[chunk][1] = value.y;
    words[chunk][2] = value.z;
    words[chunk][3] = value.w;
  }

  __device__ void Store(BFloat16* row) const {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      StoreChunk(chunk, row + Channel(0) + Step(chunk));
    }
  }
  __device__ void StoreChunk(int chunk, void* target) const { Store16(target, Chunk(chunk)); }
  __device__ Vector16 Chunk(int chunk) const {
    const uint32_t* w = words[chunk];
    return {w[0], w[1], w[2], w[3]};
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
        const uint32_t pair = words[chunk][k / 2];
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

  // x * rsqrt(mean + eps) of the row of a lane, and with kWeighted times `weight` [kHeadDim].
  template <bool kWeighted>
  __device__ void Normalize(float mean, const BFloat16* weight, float eps) {
    static_assert(kLanes == 8);
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(mean + eps));
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Vector16 w = {};
      if constexpr (kWeighted) w = Load16(weight + Channel(chunk));
      const uint32_t weights[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t& pair = words[chunk][k];
        float low = __fmul_rn(LowBf16(pair), factor);
        float high = __fmul_rn(HighBf16(pair), factor);
        if constexpr (kWeighted) {
          low = __fmul_rn(LowBf16(weights[k]), low);
          high = __fmul_rn(HighBf16(weights[k]), high);
        }
        pair = PackBf16(low, high);
      }
    }
  }

  // Of the lane's part of a row's last 64 channels.
  struct Rotation {
    float4 cosines[kChunks - kRopeChunk];
    float4 sines[kChunks - kRopeChunk];
  };
  // `rope` are the row's 32 cosines and 32 sines.
  __device__ static Rotation LoadRotation(const float* rope) {
    Rotation rotation;
#pragma unroll
    for (int chunk = 0; chunk < kChunks - kRopeChunk; ++chunk) {
      const float* cosines = rope + Channel(0) / 2 + Step(chunk) / 2;
      rotation.cosines[chunk] = *reinterpret_cast<const float4*>(cosines);
      rotation.sines[chunk] = *reinterpret_cast<const float4*>(cosines + kRopePairs);
    }
    return rotation;
  }
  __device__ void Rotate(const Rotation& rotation) {
#pragma unroll
    for (int chunk = kRopeChunk; chunk < kChunks; ++chunk) {
      RotateChunk(words[chunk], rotation.cosines[chunk - kRopeChunk],
                  rotation.sines[chunk - kRopeChunk]);
    }
  }

  // To the CPU's bits.
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
  __device__ float LargestOfChunk(int chunk) const {
    return LargerHalf(LaneMaxPair<kLanes>(MaxMagnitudePair(words[chunk])));
  }
  // The same of chunks `first` and `first + 1`, a pair.
  __device__ uint32_t LargestOfChunks(int first) const {
    const uint32_t a = MaxMagnitudePair(words[first]);
    const uint32_t b = MaxMagnitudePair(words[first + 1]);
    return LaneMaxPair<kLanes>(MaxPair(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632)));
  }

  // Snaps a chunk to the grid of e4m3 scaled by Fp8Scale of `amax`, its largest magnitude, and
  // returns what becomes of that.
  __device__ float SnapToE4m3(int chunk, float amax) {
    constexpr float kSmallestNormal = 0x1p-6f;
    const uint32_t lowest = SplatBf16(Fp8Scale(amax) * kSmallestNormal);
#pragma unroll
    for (uint32_t& pair : words[chunk]) pair = RoundPairToGrid<3>(pair, lowest);
    return HighBf16(RoundPairToGrid<3>(__float_as_uint(amax), lowest));
  }

 private:
  __device__ static void AddAcrossLanes(float (&values)[8], int distance) {
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(kFullWarp, value, distance);
  }
};

// What the steps of an entry need besides its row, in shared memory: there it takes no registers.
// Rows of 128 channels have their own (index_tile.cuh).
template <int kHeadDim>
struct EntryOperands {
  alignas(16) BFloat16 weight[kHeadDim];

  // By one warp, before a barrier.
  template <EntryFormat kFormat>
  __device__ void Fill(const BFloat16* from, const RopeFrequencies& /*frequencies*/) {
    for (int i = threadIdx.x % 32 * 8; i < kHeadDim; i += 32 * 8) {
      Store16(weight + i, Load16(from + i));
    }
  }
};

// The rows of a warp, scaled by 1 / rms and weighted. With head_dim 512 to the CPU's bits.
__device__ inline void NormalizeRows(EntryTile<512>& tile, const EntryOperands<512>& operands,
                                     float eps) {
  tile.Normalize<true>(tile.MeanSquare(), operands.weight, eps);
}

// How the lane's row is rotated as an entry of that number.
__device__ inline EntryTile<512>::Rotation RotationOf(const EntryOperands<512>& /*operands*/,
                                                      const EntryRope& rope, int entry) {
  return EntryTile<512>::LoadRotation(rope.table + int64_t{entry} * kRopeDim);
}
__device__ inline void RotateRows(EntryTile<512>& tile, const EntryOperands<512>& /*operands*/,
                                  const EntryTile<512>::Rotation& rotation) {
  tile.Rotate(rotation);
}

}  // namespace baton::kernels::cuda
