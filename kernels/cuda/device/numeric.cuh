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
// The eight values of four words, added to `sum` in their order.
__device__ inline void AddBf16(const uint4& from, float (&sum)[8]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += LowBf16(words[i]);
    sum[2 * i + 1] += HighBf16(words[i]);
  }
}
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
// 1 / scale, exact for the scales above, whose exponent fields are 1 to 253. An infinite one gives
// infinity: it stays visible.
__device__ inline float InverseOfPowerOfTwo(float scale) {
  return __uint_as_float((254u << 23) - __float_as_uint(scale));
}

// Pairs: two BF16 values in a word, computed without leaving BF16. Exact where both operands are
// powers of two times what fits.
__device__ inline __nv_bfloat162 AsBf16x2(uint32_t pair) {
  return *reinterpret_cast<const __nv_bfloat162*>(&pair);
}
__device__ inline uint32_t AsWord(__nv_bfloat162 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Both halves = `value`, which BF16 must hold exactly.
__device__ inline uint32_t SplatBf16(float value) {
  return __byte_perm(__float_as_uint(value), 0, 0x3232);
}
__device__ inline uint32_t MultiplyPair(uint32_t pair, uint32_t by) {
  return AsWord(__hmul2_rn(AsBf16x2(pair), AsBf16x2(by)));
}
// The larger of magnitudes, half by half; NaN wins.
__device__ inline uint32_t MaxPair(uint32_t a, uint32_t b) {
  return AsWord(__hmax2_nan(AsBf16x2(a), AsBf16x2(b)));
}
// e4m3 codes of eight values times a power of two, the first in the lowest byte.
__device__ inline uint2 EncodeE4m3(const uint32_t (&words)[4], float power) {
  const uint32_t by = SplatBf16(power);
  uint32_t codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = MultiplyPair(words[i], by);
    codes[i] = PackE4m3(LowBf16(pair), HighBf16(pair));
  }
  return {codes[0] | codes[1] << 16, codes[2] | codes[3] << 16};
}
// Largest magnitude of eight values, in either half.
__device__ inline uint32_t MaxMagnitudePair(const uint32_t (&words)[4]) {
  __nv_bfloat162 magnitudes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) magnitudes[i] = __habs2(AsBf16x2(words[i]));
  return AsWord(__hmax2_nan(__hmax2_nan(magnitudes[0], magnitudes[1]),
                            __hmax2_nan(magnitudes[2], magnitudes[3])));
}
// The larger of two magnitudes; as integers NaN is the largest.
__device__ inline float LargerHalf(uint32_t magnitudes) {
  return __uint_as_float(max(magnitudes << 16, magnitudes & 0xffff0000u));
}

// Rounds both halves to a format with `kMantissa` explicit bits whose numbers below `lowest`, a
// power of two, are subnormal; magnitudes do not exceed the format's largest. Adding one and a half
// times 2^(7 - kMantissa) of the value's own power of two pushes the surplus bits out of BF16's
// significand, whatever the sign. NaN stays NaN; magnitudes from 2^121 on become NaN.
template <int kMantissa>
__device__ inline uint32_t RoundPairToGrid(uint32_t pair, uint32_t lowest) {
  constexpr uint32_t kShift = static_cast<uint32_t>(127 + 7 - kMantissa) << 7 | 0x40u;
  constexpr uint32_t kBoth = 0x10001u;
  const __nv_bfloat162 unit = __hmax2(AsBf16x2(pair & 0x7f807f80u), AsBf16x2(lowest));
  const __nv_bfloat162 pushed = __hfma2(unit, AsBf16x2(kShift * kBoth), AsBf16x2(pair));
  const __nv_bfloat162 rounded = __hfma2(unit, AsBf16x2((kShift | 0x8000u) * kBoth), pushed);
  return AsWord(rounded) | (pair & 0x80008000u);  // zero keeps its sign
}

}  // namespace baton::kernels::cuda
