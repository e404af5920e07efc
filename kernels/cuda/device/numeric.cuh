#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

// kernels/numeric.h on the device, to the same bits (NaN stays NaN, its sign and payload may
// differ). Everything rounds to nearest, ties to even.

namespace baton::kernels::cuda {

// A word holds two BF16 values, the first in the low half.
__device__ inline float LowBf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float HighBf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ inline uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// The value after a round trip through BF16.
__device__ inline float RoundToBf16(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}

// Two e4m3 codes, saturated at +-448, the first in the low byte.
__device__ inline uint16_t PackE4m3(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}
__device__ inline uint32_t PackE4m3(float a, float b, float c, float d) {
  return PackE4m3(a, b) | uint32_t{PackE4m3(c, d)} << 16;
}
__device__ inline float2 UnpackE4m3(uint16_t codes) {
  const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
  return __half22float2(__half2(pair));
}

// e2m1 as FP32: scaled by 2^-126 its smallest normal number becomes FP32's, so that FP32's own
// fields, subnormals included, are those of e2m1, with the code in bits 22 to 24.
inline constexpr float kE2m1ToFloat = 0x1p126f;
__device__ inline uint32_t RoundedE2m1Bits(float value) {
  const float magnitude = fabsf(value) > 6.0f ? 6.0f : fabsf(value);  // NaN stays NaN
  const uint32_t bits = __float_as_uint(__fmul_rn(magnitude, 0x1p-126f));
  return bits + 0x1fffffu + ((bits >> 22) & 1u);
}
// The code in the low nibble; saturated at +-6. NaN has no code: callers mark it in the scale.
__device__ inline uint32_t EncodeE2m1(float value) {
  return ((RoundedE2m1Bits(value) >> 22) & 7u) | ((__float_as_uint(value) >> 28) & 8u);
}
// The value of EncodeE2m1(value); NaN stays NaN.
__device__ inline float RoundToE2m1(float value) {
  const float magnitude = __uint_as_float(RoundedE2m1Bits(value) & 0xffc00000u);
  return value != value ? value : copysignf(__fmul_rn(magnitude, kE2m1ToFloat), value);
}

// Powers of two from their exponent field, and the field of one; 0 stands for 2^-127.
__device__ inline float DecodeE8m0(uint32_t code) {
  if (code == 255) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(code == 0 ? 0x00400000u : code << 23);
}
__device__ inline uint32_t EncodeE8m0(float scale) {
  return (__float_as_uint(scale) >> 23) & 0xffu;
}

// The smallest power of two >= fl32(amax * fl32(1 / max)), for a positive finite argument.
__device__ inline float PowerOfTwoScale(float amax, float max) {
  const uint32_t bits = __float_as_uint(__fmul_rn(amax, 1.0f / max));
  return __uint_as_float((bits + 0x7fffffu) & 0xff800000u);
}
// fmaxf drops NaN: a group that holds one is scaled by the floor, and its NaN shows in the codes.
__device__ inline float Fp8Scale(float amax) { return PowerOfTwoScale(fmaxf(amax, 1e-4f), 448.0f); }
__device__ inline float Fp4Scale(float amax) {
  return PowerOfTwoScale(fmaxf(amax, 0x1.8p-124f), 6.0f);
}
// 1 / scale, exact for a power of two.
__device__ inline float InverseOfPowerOfTwo(float scale) { return __frcp_rn(scale); }

}  // namespace baton::kernels::cuda
