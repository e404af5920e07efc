#pragma once

#include <cstdint>

#include "kernels/cuda/device/numeric.cuh"

// Reductions over 2^n neighbouring lanes; every lane gets the result. All lanes of the warp call.

namespace baton::kernels::cuda {

inline constexpr uint32_t kFullWarp = 0xffffffffu;

template <int kLanes>
__device__ inline float LaneSum(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, distance);
  }
  return value;
}

// NaN if any lane has NaN.
template <int kLanes>
__device__ inline float LaneMax(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kFullWarp, value, distance);
    value = value > other || value != value ? value : other;
  }
  return value;
}

// Of pairs of BF16 magnitudes; NaN wins.
template <int kLanes>
__device__ inline uint32_t LaneMaxPair(uint32_t magnitudes) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    magnitudes = MaxPair(magnitudes, __shfl_xor_sync(kFullWarp, magnitudes, distance));
  }
  return magnitudes;
}

// Over a block of kWarps full warps; `scratch` has kWarps floats of shared memory and may be used
// again after the next barrier.
template <int kWarps>
__device__ inline float BlockSum(float value, float* scratch) {
  value = LaneSum<32>(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += scratch[warp];
  return sum;
}

}  // namespace baton::kernels::cuda
