#include "kernels/cpu/isa/kernels.h"
#include "kernels/numeric.h"

namespace baton::kernels::BATON_ISA {

namespace {

// A binary format with `kMantissa` explicit bits, subnormal below 2^kMinExponent, ending at kMax.
template <int kMantissa, int kMinExponent>
F32x16 RoundToGrid(const F32x16& x, float max) {
  const F32x16 magnitude = Min(Broadcast(max), Abs(x));  // NaN stays NaN
  F32x16 magic;
  for (int i = 0; i < kPieces; ++i) {
    // Adding 2^(e + 23 - kMantissa) pushes all bits below 2^(e - kMantissa) out of the significand.
    WordPiece exponent = reinterpret_cast<WordPiece>(magnitude.p[i]) & 0x7f800000u;
    const WordPiece lowest = WordPiece{} + (uint32_t{127 + kMinExponent} << 23);
    exponent = exponent > lowest ? exponent : lowest;
    magic.p[i] = reinterpret_cast<FloatPiece>(exponent + (uint32_t{23 - kMantissa} << 23));
  }
  return WithSign((magnitude + magic) - magic, x);
}

float LargestMagnitude(const BFloat16* x, int n) {
  F32x16 largest = Abs(Load(x));
  for (int i = kLanes; i < n; i += kLanes) largest = Max(Abs(Load(x + i)), largest);
  return MaxLane(largest);
}

}  // namespace

void FakeQuantFp8(const BFloat16* x, BFloat16* y, int n, int group) {
  for (int start = 0; start < n; start += group) {
    const float scale = Fp8Scale(LargestMagnitude(x + start, group));
    const F32x16 up = Broadcast(scale);
    const F32x16 down = Broadcast(1.0f / scale);
    for (int i = start; i < start + group; i += kLanes) {
      Store(RoundToGrid<3, -6>(Load(x + i) * down, kE4m3Max) * up, y + i);
    }
  }
}

void FakeQuantFp4(const BFloat16* x, BFloat16* y, int n) {
  constexpr int kGroup = 32;
  for (int start = 0; start < n; start += kGroup) {
    const float scale = Fp4Scale(LargestMagnitude(x + start, kGroup));
    const F32x16 up = Broadcast(scale);
    const F32x16 down = Broadcast(1.0f / scale);
    for (int i = start; i < start + kGroup; i += kLanes) {
      Store(RoundToGrid<1, 0>(Load(x + i) * down, kE2m1Max) * up, y + i);
    }
  }
}

void DecodeE4m3Row(const uint8_t* codes, int n, float scale, BFloat16* y) {
  const F32x16 factor = Broadcast(scale);
  for (int start = 0; start < n; start += kLanes) {
    F32x16 value;
    for (int i = 0; i < kPieces; ++i) {
      BytePiece bytes;
      std::memcpy(&bytes, codes + start + i * kPieceLanes, sizeof(bytes));
      const WordPiece code = Widened(bytes);
      const WordPiece magnitude = code & 0x7fu;
      const FloatPiece normal =
          reinterpret_cast<FloatPiece>((magnitude << 20) + (uint32_t{127 - 7} << 23));
      // 2^-6 * (1 + m / 8) - 2^-6: never a subnormal FP32 number, which would be slow.
      const FloatPiece subnormal =
          reinterpret_cast<FloatPiece>((magnitude << 20) + (uint32_t{127 - 6} << 23)) - 0.015625f;
      WordPiece bits = reinterpret_cast<WordPiece>(magnitude < 8u ? subnormal : normal);
      bits = magnitude == 0x7fu ? WordPiece{} + 0x7fc00000u : bits;
      value.p[i] = reinterpret_cast<FloatPiece>(bits | ((code & 0x80u) << 24));
    }
    Store(value * factor, y + start);
  }
}

void Hadamard128(BFloat16* x) {
  constexpr int kSize = 128;
  float values[kSize];
  for (int i = 0; i < kSize; i += kLanes) Store(Load(x + i), values + i);
  for (int stride = 1; stride < kLanes; stride *= 2) {
    for (int block = 0; block < kSize; block += 2 * stride) {
      for (int i = block; i < block + stride; ++i) {
        const float a = values[i];
        const float b = values[i + stride];
        values[i] = a + b;
        values[i + stride] = a - b;
      }
    }
  }
  for (int stride = kLanes; stride < kSize; stride *= 2) {
    for (int block = 0; block < kSize; block += 2 * stride) {
      for (int i = block; i < block + stride; i += kLanes) {
        const F32x16 a = Load(values + i);
        const F32x16 b = Load(values + i + stride);
        Store(a + b, values + i);
        Store(a - b, values + i + stride);
      }
    }
  }
  const F32x16 norm = Broadcast(0.08838834764831845f);
  for (int i = 0; i < kSize; i += kLanes) Store(Load(values + i) * norm, x + i);
}

}  // namespace baton::kernels::BATON_ISA
