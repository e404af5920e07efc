#pragma once

#include "kernels/cuda/device/numeric.cuh"

namespace baton::kernels::cuda {

// bf16(weight * silu(min(a, limit)) * clamp(b, +-limit)) of BF16 values. NaN stays NaN.
__device__ inline float Gate(float a, float b, float weight, float limit) {
  a = a > limit ? limit : a;
  b = b > limit ? limit : b < -limit ? -limit : b;
  return RoundToBf16(weight * (a * (1.0f / (1.0f + expf(-a))) * b));
}

}  // namespace baton::kernels::cuda
