#pragma once

#include <cstdint>

#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/fp8_rows.h"

namespace baton::kernels::cuda {

inline constexpr int kActivationGroup = 128;

// Quantises eight values of a row, columns `column` and on; sixteen neighbouring lanes hold a group
// of 128. All lanes of the warp call, those with nothing to store with `active` false and zeros.
__device__ inline void StoreFp8(const MutableFp8Rows& y, int64_t row, int64_t column, bool active,
                                const uint32_t (&words)[4]) {
  const float scale = Fp8Scale(LargerHalf(LaneMaxPair<16>(MaxMagnitudePair(words))));
  const float inverse = InverseOfPowerOfTwo(scale);
  if (!active) return;
  uint16_t codes[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    codes[k] = PackE4m3(LowBf16(words[k]) * inverse, HighBf16(words[k]) * inverse);
  }
  *reinterpret_cast<uint2*>(y.codes + row * y.stride + column) = {
      codes[0] | uint32_t{codes[1]} << 16, codes[2] | uint32_t{codes[3]} << 16};
  if (column % kActivationGroup == 0) {
    y.scales[column / kActivationGroup * y.scale_stride + row] = scale;
  }
}

}  // namespace baton::kernels::cuda
