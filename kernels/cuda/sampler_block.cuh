#pragma once

#include <cstdint>

#include "kernels/cuda/device/reduce.cuh"

// Sums and maxima over a block of kSampleThreads threads, for the sampler.

namespace baton::kernels::cuda {

inline constexpr int kSampleThreads = 1024;
inline constexpr int kSampleWarps = kSampleThreads / 32;

// Orders as the logits do; -0 and +0 are equal, as they are to the host's comparison.
__device__ inline uint32_t OrderedBits(float logit) {
  const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float FromOrderedBits(uint32_t ordered) {
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

template <typename T>
__device__ T BlockMax(T value, T* scratch) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kFullWarp, value, distance);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  T largest = scratch[0];
  for (int warp = 1; warp < kSampleWarps; ++warp) {
    largest = scratch[warp] > largest ? scratch[warp] : largest;
  }
  __syncthreads();
  return largest;
}

// Sum over the threads before the calling one; `total` over all. The order is fixed.
template <typename T>
__device__ T BlockSumBefore(T value, T* scratch, T& total) {
  T sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const T other = __shfl_up_sync(kFullWarp, sum, distance);
    if (threadIdx.x % 32 >= static_cast<unsigned>(distance)) sum += other;
  }
  if (threadIdx.x % 32 == 31) scratch[threadIdx.x / 32] = sum;
  __syncthreads();
  T before = 0;
  total = 0;
  for (unsigned warp = 0; warp < kSampleWarps; ++warp) {
    if (warp == threadIdx.x / 32) before = total;
    total += scratch[warp];
  }
  const T within = __shfl_up_sync(kFullWarp, sum, 1);
  __syncthreads();
  return threadIdx.x % 32 == 0 ? before : before + within;
}

}  // namespace baton::kernels::cuda
