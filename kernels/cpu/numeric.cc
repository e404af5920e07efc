#include "kernels/numeric.h"

#include <array>
#include <bit>
#include <cmath>

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

constexpr float kE2m1Values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

std::array<float, 256> MakeE4m3Values() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((code & 0x7f) == 0x7f) magnitude = std::bit_cast<float>(0x7fc00000u);
    values[code] = std::copysign(magnitude, code < 128 ? 1.0f : -1.0f);
  }
  return values;
}

const std::array<float, 256> kE4m3Values = MakeE4m3Values();

// The smallest power of two >= fl32(amax * fl32(1 / max)).
float PowerOfTwoScale(float amax, float max) {
  const uint32_t bits = std::bit_cast<uint32_t>(amax * (1.0f / max));
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
  return std::bit_cast<float>(exponent << 23);
}

}  // namespace

float DecodeE4m3(uint8_t code) { return kE4m3Values[code]; }

uint8_t EncodeE4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const float magnitude = std::fmin(std::fabs(value), kE4m3Max);
  // In units of the subnormal step the result is a small integer up to the first normal binade.
  if (magnitude < 0.015625f) return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512.0f));
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  bits += 0x7ffffu + ((bits >> 20) & 1u);
  return sign | static_cast<uint8_t>((bits >> 20) - ((127u - 7u) << 3));
}

float DecodeE2m1(uint8_t nibble) {
  const float magnitude = kE2m1Values[nibble & 7];
  return (nibble & 8) != 0 ? -magnitude : magnitude;
}

uint8_t EncodeE2m1(float value) {
  const float magnitude = std::fabs(value);
  // Midpoints between neighbours; on a tie the even code wins.
  constexpr float kMidpoints[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  uint8_t code = 0;
  for (int i = 0; i < 7; ++i) {
    const bool above = (i % 2 == 0) ? magnitude > kMidpoints[i] : magnitude >= kMidpoints[i];
    if (above) code = static_cast<uint8_t>(i + 1);
  }
  return std::signbit(value) ? code | 8 : code;
}

float DecodeE8m0(uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  return code == 0 ? std::ldexp(1.0f, -127) : std::bit_cast<float>(uint32_t{code} << 23);
}

uint8_t EncodeE8m0(float scale) {
  return static_cast<uint8_t>((std::bit_cast<uint32_t>(scale) >> 23) & 0xffu);
}

float Fp8Scale(float amax) { return PowerOfTwoScale(std::fmax(amax, 1e-4f), kE4m3Max); }

float Fp4Scale(float amax) {
  return PowerOfTwoScale(std::fmax(amax, std::ldexp(6.0f, -126)), kE2m1Max);
}

void FakeQuantFp8(const BFloat16* x, BFloat16* y, int n, int group) {
  BATON_CHECK(group > 0 && group % 16 == 0 && n % group == 0) << "n " << n << ", group " << group;
  Isa().fake_quant_fp8(x, y, n, group);
}

void FakeQuantFp4(const BFloat16* x, BFloat16* y, int n) {
  BATON_CHECK(n % 32 == 0) << "n " << n;
  Isa().fake_quant_fp4(x, y, n);
}

void Hadamard128(BFloat16* x) { Isa().hadamard128(x); }

}  // namespace baton::kernels
