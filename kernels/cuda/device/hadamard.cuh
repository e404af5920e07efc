#pragma once

// Walsh-Hadamard butterflies in natural order, unscaled.

namespace baton::kernels::cuda {

// In place over values a thread holds itself: kCount = 2^n values, index bit by index bit.
template <int kCount>
__device__ inline void HadamardInThread(float (&values)[kCount]) {
#pragma unroll
  for (int stride = 1; stride < kCount; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if ((i & stride) != 0) continue;
      const float a = values[i];
      const float b = values[i + stride];
      values[i] = a + b;
      values[i + stride] = a - b;
    }
  }
}

// In place over bits of the lane number, from the lowest up to kLanes / 2: value i of a lane pairs
// with value i of its partner.
template <int kLanes, int kCount>
__device__ inline void HadamardAcrossLanes(float (&values)[kCount]) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const float sign = (threadIdx.x & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, values[i], distance);
      values[i] = __fmaf_rn(values[i], sign, other);
    }
  }
}

}  // namespace baton::kernels::cuda
