#pragma once

#include <cstdint>
#include <cstring>

#include "common/base/bf16.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Sixteen FP32 lanes on any instruction set. Files in this folder are compiled once per set; what
// they define lives in a namespace of its own, so that the linker never hands AVX-512 code to a
// caller without it. For the same reason they use no inline function from outside.
//
// Every operation yields the same bits on every set: products are fused only by Fma, and sums over
// lanes have one order. The choice of set is therefore invisible but for speed.

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define BATON_ISA avx512
#define BATON_ISA_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__)
#define BATON_ISA avx2
#define BATON_ISA_BYTES 32
#else
#define BATON_ISA portable
#define BATON_ISA_BYTES 16
#endif

namespace baton::kernels::BATON_ISA {

constexpr int kLanes = 16;
constexpr int kPieceLanes = BATON_ISA_BYTES / 4;
constexpr int kPieces = kLanes / kPieceLanes;

typedef float FloatPiece __attribute__((vector_size(BATON_ISA_BYTES)));
typedef int32_t IntPiece __attribute__((vector_size(BATON_ISA_BYTES)));
typedef uint32_t WordPiece __attribute__((vector_size(BATON_ISA_BYTES)));
typedef uint16_t HalfPiece __attribute__((vector_size(BATON_ISA_BYTES / 2)));

typedef uint8_t BytePiece __attribute__((vector_size(BATON_ISA_BYTES / 4)));

struct F32x16 {
  FloatPiece p[kPieces];

  F32x16() = default;
  // Piece by piece: the compiler would copy through memory in chunks smaller than a register, and
  // loading those back as one stalls.
  F32x16(const F32x16& other) { *this = other; }
  F32x16& operator=(const F32x16& other) {
    for (int i = 0; i < kPieces; ++i) p[i] = other.p[i];
    return *this;
  }
};

#define BATON_LANEWISE(name, op)                                 \
  static inline F32x16 name(const F32x16& a, const F32x16& b) {  \
    F32x16 r;                                                    \
    for (int i = 0; i < kPieces; ++i) r.p[i] = a.p[i] op b.p[i]; \
    return r;                                                    \
  }
BATON_LANEWISE(operator+, +)
BATON_LANEWISE(operator-, -)
BATON_LANEWISE(operator*, *)
BATON_LANEWISE(operator/, /)
#undef BATON_LANEWISE

static inline F32x16 Broadcast(float value) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) r.p[i] = value - FloatPiece{};
  return r;
}

static inline F32x16 Zero() {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) r.p[i] = FloatPiece{};
  return r;
}

static inline F32x16 Load(const float* source) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) {
    std::memcpy(&r.p[i], source + i * kPieceLanes, sizeof(r.p[i]));
  }
  return r;
}

static inline void Store(const F32x16& a, float* target) {
  for (int i = 0; i < kPieces; ++i) {
    std::memcpy(target + i * kPieceLanes, &a.p[i], sizeof(a.p[i]));
  }
}

// Between 8 or 16 and 32 bits a lane. The compiler's own conversion splits 64-byte vectors in
// halves.
static inline WordPiece Widened(const HalfPiece& half) {
#if BATON_ISA_BYTES == 64
  return reinterpret_cast<WordPiece>(
      _mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(half)));
#else
  return __builtin_convertvector(half, WordPiece);
#endif
}

static inline WordPiece Widened(const BytePiece& bytes) {
#if BATON_ISA_BYTES == 64
  return reinterpret_cast<WordPiece>(
      _mm512_maskz_cvtepu8_epi32(0xffff, reinterpret_cast<__m128i>(bytes)));
#else
  return __builtin_convertvector(bytes, WordPiece);
#endif
}

static inline HalfPiece LowHalves(const WordPiece& word) {
#if BATON_ISA_BYTES == 64
  return reinterpret_cast<HalfPiece>(
      _mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(word)));
#else
  return __builtin_convertvector(word, HalfPiece);
#endif
}

static inline F32x16 Load(const BFloat16* source) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) {
    HalfPiece half;
    std::memcpy(&half, source + i * kPieceLanes, sizeof(half));
    r.p[i] = reinterpret_cast<FloatPiece>(Widened(half) << 16);
  }
  return r;
}

// 32 consecutive values as those of even and those of odd index: half the work of two Loads.
struct EvenOdd {
  F32x16 even;
  F32x16 odd;
};

static inline EvenOdd LoadEvenOdd(const BFloat16* source) {
  EvenOdd r;
  for (int i = 0; i < kPieces; ++i) {
    WordPiece pairs;
    std::memcpy(&pairs, source + 2 * i * kPieceLanes, sizeof(pairs));
    r.even.p[i] = reinterpret_cast<FloatPiece>(pairs << 16);
    r.odd.p[i] = reinterpret_cast<FloatPiece>(pairs & 0xffff0000u);
  }
  return r;
}

// FP32 bits whose upper half is the BF16 value: nearest, ties to even; NaN stays NaN.
static inline WordPiece RoundedToBf16(const FloatPiece& a) {
  const WordPiece word = reinterpret_cast<WordPiece>(a);
  const WordPiece rounded = word + 0x7fffu + ((word >> 16) & 1u);
  return (word & 0x7fffffffu) > 0x7f800000u ? word | 0x400000u : rounded;
}

static inline void StoreEvenOdd(const EvenOdd& a, BFloat16* target) {
  for (int i = 0; i < kPieces; ++i) {
    const WordPiece pairs =
        (RoundedToBf16(a.even.p[i]) >> 16) | (RoundedToBf16(a.odd.p[i]) & 0xffff0000u);
    std::memcpy(static_cast<void*>(target + 2 * i * kPieceLanes), &pairs, sizeof(pairs));
  }
}

static inline void Store(const F32x16& a, BFloat16* target) {
  for (int i = 0; i < kPieces; ++i) {
    const HalfPiece half = LowHalves(RoundedToBf16(a.p[i]) >> 16);
    std::memcpy(static_cast<void*>(target + i * kPieceLanes), &half, sizeof(half));
  }
}

// a * b + c, rounded once.
static inline F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) {
#if BATON_ISA_BYTES == 64
    r.p[i] = _mm512_fmadd_ps(a.p[i], b.p[i], c.p[i]);
#elif BATON_ISA_BYTES == 32
    r.p[i] = _mm256_fmadd_ps(a.p[i], b.p[i], c.p[i]);
#else
    for (int lane = 0; lane < kPieceLanes; ++lane) {
      r.p[i][lane] = __builtin_fmaf(a.p[i][lane], b.p[i][lane], c.p[i][lane]);
    }
#endif
  }
  return r;
}

// Max and Min return b where either is NaN.
static inline F32x16 Max(const F32x16& a, const F32x16& b) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) r.p[i] = a.p[i] > b.p[i] ? a.p[i] : b.p[i];
  return r;
}

static inline F32x16 Min(const F32x16& a, const F32x16& b) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) r.p[i] = a.p[i] < b.p[i] ? a.p[i] : b.p[i];
  return r;
}

static inline F32x16 Abs(const F32x16& a) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) {
    r.p[i] = reinterpret_cast<FloatPiece>(reinterpret_cast<WordPiece>(a.p[i]) & 0x7fffffffu);
  }
  return r;
}

// magnitude >= 0 with the sign of `sign`.
static inline F32x16 WithSign(const F32x16& magnitude, const F32x16& sign) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) {
    r.p[i] = reinterpret_cast<FloatPiece>(reinterpret_cast<WordPiece>(magnitude.p[i]) |
                                          (reinterpret_cast<WordPiece>(sign.p[i]) & 0x80000000u));
  }
  return r;
}

// The value after a round trip through BF16.
static inline F32x16 RoundToBf16Lanes(const F32x16& a) {
  F32x16 r;
  for (int i = 0; i < kPieces; ++i) {
    r.p[i] = reinterpret_cast<FloatPiece>(RoundedToBf16(a.p[i]) & 0xffff0000u);
  }
  return r;
}

// Sum over lanes: lane l with l + 8, then l + 4, l + 2, l + 1.
static inline float Sum(const F32x16& a) {
  float lanes[kLanes];
  Store(a, lanes);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

static inline float MaxLane(const F32x16& a) {
  float lanes[kLanes];
  Store(a, lanes);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) {
      lanes[lane] = lanes[lane] > lanes[lane + width] ? lanes[lane] : lanes[lane + width];
    }
  }
  return lanes[0];
}

// sums[i] = Sum(a[i]), i < 16.
static inline void SumEach(const F32x16* a, float* sums) {
#if BATON_ISA_BYTES == 64
  // Each step halves the lanes that belong to one input and packs two registers into one.
  FloatPiece x[8];
  for (int i = 0; i < 8; ++i) {
    const FloatPiece u = a[2 * i].p[0];
    const FloatPiece v = a[2 * i + 1].p[0];
    x[i] =
        __builtin_shufflevector(u, v, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(u, v, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 4; ++i) {
    const FloatPiece u = x[2 * i];
    const FloatPiece v = x[2 * i + 1];
    x[i] =
        __builtin_shufflevector(u, v, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
        __builtin_shufflevector(u, v, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
  for (int i = 0; i < 2; ++i) {
    const FloatPiece u = x[2 * i];
    const FloatPiece v = x[2 * i + 1];
    x[i] =
        __builtin_shufflevector(u, v, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
        __builtin_shufflevector(u, v, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
  }
  const FloatPiece sum = __builtin_shufflevector(x[0], x[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                                 22, 24, 26, 28, 30) +
                         __builtin_shufflevector(x[0], x[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21,
                                                 23, 25, 27, 29, 31);
  std::memcpy(sums, &sum, sizeof(sum));
#else
  for (int i = 0; i < kLanes; ++i) sums[i] = Sum(a[i]);
#endif
}

// e^x within 2 ulp; 0 below -87.3, infinity above 88.7, NaN stays NaN.
static inline F32x16 Exp(const F32x16& x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.7f;
  constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const F32x16 clamped = Max(Min(x, Broadcast(kHighest)), Broadcast(kLowest));
  const F32x16 shifted = Fma(clamped, Broadcast(1.44269504f), Broadcast(kRoundingMagic));
  const F32x16 n = shifted - Broadcast(kRoundingMagic);
  F32x16 r = Fma(n, Broadcast(-0.693359375f), clamped);
  r = Fma(n, Broadcast(2.12194440e-4f), r);
  F32x16 y = Broadcast(1.9875691500e-4f);
  y = Fma(y, r, Broadcast(1.3981999507e-3f));
  y = Fma(y, r, Broadcast(8.3334519073e-3f));
  y = Fma(y, r, Broadcast(4.1665795894e-2f));
  y = Fma(y, r, Broadcast(1.6666665459e-1f));
  y = Fma(y, r, Broadcast(5.0000001201e-1f));
  y = Fma(y, r * r, r) + Broadcast(1.0f);
  F32x16 result;
  for (int i = 0; i < kPieces; ++i) {
    // n is in [-126, 128]: two steps keep the exponent field in range.
    const IntPiece exponent = __builtin_convertvector(n.p[i], IntPiece);
    const IntPiece half = exponent >> 1;
    const FloatPiece scale1 = reinterpret_cast<FloatPiece>((half + 127) << 23);
    const FloatPiece scale2 = reinterpret_cast<FloatPiece>((exponent - half + 127) << 23);
    FloatPiece value = y.p[i] * scale1 * scale2;
    value = x.p[i] < kLowest ? FloatPiece{} : value;
    value = x.p[i] > kHighest ? __builtin_inff() - FloatPiece{} : value;
    result.p[i] = x.p[i] == x.p[i] ? value : x.p[i];
  }
  return result;
}

static inline F32x16 Sigmoid(const F32x16& x) {
  return Broadcast(1.0f) / (Broadcast(1.0f) + Exp(Zero() - x));
}

}  // namespace baton::kernels::BATON_ISA
