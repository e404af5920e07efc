#pragma once

#include <bit>
#include <cstdint>

// bfloat16 as storage: 1 sign, 8 exponent, 7 mantissa bits. Widening is exact; narrowing rounds to
// nearest, ties to even, and keeps NaN a NaN.

namespace baton {

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(Round(value)) {}
  static constexpr BFloat16 FromBits(uint16_t bits) {
    BFloat16 result;
    result.bits = bits;
    return result;
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  friend bool operator==(BFloat16, BFloat16) = default;

 private:
  static uint16_t Round(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((word >> 16) | 0x40u);
    return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(BFloat16) == 2);

// The value of `x` after a round trip through bfloat16.
inline float RoundToBf16(float x) { return static_cast<float>(BFloat16(x)); }

}  // namespace baton
