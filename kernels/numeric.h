#pragma once

#include <bit>
#include <cstdint>

#include "common/base/bf16.h"

// The small number formats of the checkpoint and of the cache. All conversions round to nearest,
// ties to even.
//   e4m3  1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, 0x7f/0xff are NaN; max 448
//   e2m1  0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, in the low nibble
//   e8m0  byte b is 2^(b - 127); 255 is NaN

namespace baton::kernels {

// Whether the FP8 and FP4 grids that the model was trained with are simulated (kReference) or
// values are kept as computed and rounded by the store alone (kExact).
enum class Numerics : uint8_t { kReference, kExact };

inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE2m1Max = 6.0f;

float DecodeE4m3(uint8_t code);
uint8_t EncodeE4m3(float value);  // saturates at +-448; NaN stays NaN

float DecodeE2m1(uint8_t nibble);  // upper four bits are ignored
uint8_t EncodeE2m1(float value);   // saturates at +-6

float DecodeE8m0(uint8_t code);
// `scale` must be a power of two in [2^-127, 2^127].
uint8_t EncodeE8m0(float scale);

// Scale of a group whose largest magnitude is `amax`: the smallest power of two s with
// max(amax, floor) / s <= max code, as 2^ceil(log2(fl32(max(amax, floor) * fl32(1 / max code)))).
float Fp8Scale(float amax);  // floor 1e-4, max code 448
float Fp4Scale(float amax);  // floor 6 * 2^-126, max code 6

// y_i = bf16(e4m3(clamp(x_i / s, +-448)) * s), s = Fp8Scale of each group of `group` values.
// n is a multiple of `group`, which is a multiple of 16. x may be y.
void FakeQuantFp8(const BFloat16* x, BFloat16* y, int n, int group);
// The same on the e2m1 grid with groups of 32; n is a multiple of 32. x may be y.
void FakeQuantFp4(const BFloat16* x, BFloat16* y, int n);

// In place: y = H x / sqrt(128) with the 128 x 128 Walsh-Hadamard matrix in natural order;
// BF16 in and out, FP32 inside.
void Hadamard128(BFloat16* x);

}  // namespace baton::kernels
