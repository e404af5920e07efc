#pragma once

#include <cstdint>

#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/fp8_rows.h"

namespace baton::kernels::cuda {

inline constexpr int kActivationGroup = 128;

// The scale of a group of 128, of which sixteen neighbouring lanes hold eight values each. All
// lanes of the warp call, those without values with zeros.
__device__ inline float Fp8GroupScale(const uint32_t (&words)[4]) {
  return Fp8Scale(LargerHalf(LaneMaxPair<16>(MaxMagnitudePair(words))));
}

// Stores a lane's eight values, columns `column` and on of a row, and with the first of a group its
// scale.
__device__ inline void StoreFp8(const MutableFp8Rows& y, int64_t row, int64_t column,
                                const uint32_t (&words)[4], float scale) {
  *reinterpret_cast<uint2*>(y.codes + row * y.stride + column) =
      EncodeE4m3(words, InverseOfPowerOfTwo(scale));
  if (column % kActivationGroup == 0) {
    y.scales[column / kActivationGroup * y.scale_stride + row] = scale;
  }
}

}  // namespace baton::kernels::cuda
