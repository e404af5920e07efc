#include "kernels/numeric.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/dequantize.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The nearest value that `decode` gives for any code below `codes`, the even code on a tie.
template <typename Decode>
float NearestOnGrid(float x, int codes, Decode decode) {
  float best = 0;
  int best_code = 0;
  double best_distance = kInfinity;
  for (int code = 0; code < codes; ++code) {
    const float value = decode(static_cast<uint8_t>(code));
    if (std::isnan(value)) continue;
    const double distance = std::fabs(static_cast<double>(std::fabs(x)) - value);
    if (distance < best_distance || (distance == best_distance && best_code % 2 == 1)) {
      best = value;
      best_code = code;
      best_distance = distance;
    }
  }
  return std::copysign(best, x);
}

TEST(E4m3Test, KnownCodes) {
  EXPECT_EQ(DecodeE4m3(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(DecodeE4m3(0x80)));
  EXPECT_EQ(DecodeE4m3(0x01), 0.001953125f);
  EXPECT_EQ(DecodeE4m3(0x08), 0.015625f);
  EXPECT_EQ(DecodeE4m3(0x38), 1.0f);
  EXPECT_EQ(DecodeE4m3(0x7e), 448.0f);
  EXPECT_EQ(DecodeE4m3(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(DecodeE4m3(0x7f)));
  EXPECT_TRUE(std::isnan(DecodeE4m3(0xff)));
}

TEST(E4m3Test, EveryCodeSurvivesARoundTrip) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(EncodeE4m3(DecodeE4m3(static_cast<uint8_t>(code))), code);
  }
}

TEST(E4m3Test, TiesGoToTheEvenCodeAndLargeValuesSaturate) {
  EXPECT_EQ(DecodeE4m3(EncodeE4m3(1.0625f)), 1.0f);
  EXPECT_EQ(DecodeE4m3(EncodeE4m3(1.1875f)), 1.25f);
  EXPECT_EQ(DecodeE4m3(EncodeE4m3(0.0009765625f)), 0.0f);
  EXPECT_EQ(DecodeE4m3(EncodeE4m3(0.0029296875f)), 0.00390625f);
  EXPECT_EQ(DecodeE4m3(EncodeE4m3(0.0151f)), 0.015625f);  // from the subnormals up
  EXPECT_EQ(DecodeE4m3(EncodeE4m3(449.0f)), 448.0f);
  EXPECT_EQ(DecodeE4m3(EncodeE4m3(-kInfinity)), -448.0f);
  EXPECT_TRUE(std::isnan(DecodeE4m3(EncodeE4m3(kNaN))));
}

TEST(E4m3Test, RandomValuesGoToTheNearestCode) {
  for (const float x : RandomValues<float>(2000, 1, 40.0f)) {
    for (const float scaled : {x, x * 1e-4f}) {
      EXPECT_EQ(DecodeE4m3(EncodeE4m3(scaled)), NearestOnGrid(scaled, 0x7f, DecodeE4m3)) << scaled;
    }
  }
}

TEST(E2m1Test, TiesGoToTheEvenCodeAndLargeValuesSaturate) {
  const float inputs[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 7.0f, -0.2f, -5.1f};
  const float expected[] = {0.0f, 1.0f, 1.0f, 2.0f, 2.0f, 4.0f, 4.0f, 6.0f, -0.0f, -6.0f};
  for (int i = 0; i < 10; ++i) {
    const float y = DecodeE2m1(EncodeE2m1(inputs[i]));
    EXPECT_EQ(y, expected[i]) << inputs[i];
    EXPECT_EQ(std::signbit(y), std::signbit(expected[i])) << inputs[i];
  }
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(EncodeE2m1(DecodeE2m1(static_cast<uint8_t>(code))), code);
  }
}

TEST(E8m0Test, CodesArePowersOfTwo) {
  EXPECT_EQ(DecodeE8m0(127), 1.0f);
  EXPECT_EQ(DecodeE8m0(0), std::ldexp(1.0f, -127));
  EXPECT_EQ(DecodeE8m0(254), std::ldexp(1.0f, 127));
  EXPECT_TRUE(std::isnan(DecodeE8m0(255)));
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(EncodeE8m0(DecodeE8m0(static_cast<uint8_t>(code))), code);
  }
}

TEST(ScaleTest, IsTheSmallestPowerOfTwoThatFits) {
  EXPECT_EQ(Fp8Scale(448.0f), 1.0f);
  EXPECT_EQ(Fp8Scale(450.0f), 2.0f);
  EXPECT_EQ(Fp8Scale(224.0f), 0.5f);
  EXPECT_EQ(Fp8Scale(0.0f), std::ldexp(1.0f, -22));
  EXPECT_EQ(Fp8Scale(1e-5f), std::ldexp(1.0f, -22));
  EXPECT_EQ(Fp4Scale(6.0f), 1.0f);
  EXPECT_EQ(Fp4Scale(6.04f), 2.0f);
  EXPECT_EQ(Fp4Scale(0.0f), std::ldexp(1.0f, -126));
}

// The formula on scalars.
std::vector<float> FakeQuantised(const std::vector<BFloat16>& x, int group, bool fp8) {
  std::vector<float> y;
  for (size_t start = 0; start < x.size(); start += group) {
    float amax = 0;
    for (int i = 0; i < group; ++i) {
      amax = std::fmax(amax, std::fabs(static_cast<float>(x[start + i])));
    }
    const float scale = fp8 ? Fp8Scale(amax) : Fp4Scale(amax);
    for (int i = 0; i < group; ++i) {
      const float v = static_cast<float>(x[start + i]) / scale;
      y.push_back(
          RoundToBf16((fp8 ? DecodeE4m3(EncodeE4m3(v)) : DecodeE2m1(EncodeE2m1(v))) * scale));
    }
  }
  return y;
}

TEST(FakeQuantTest, MatchesTheScalarFormulaAndIsIdempotent) {
  for (const float deviation : {1e-6f, 0.01f, 1.0f, 3000.0f}) {
    std::vector<BFloat16> x = RandomValues<BFloat16>(768, 3, deviation);
    std::fill(x.begin(), x.begin() + 128, BFloat16());  // a group of zeros
    std::vector<BFloat16> y(x.size());
    for (const int group : {64, 128}) {
      FakeQuantFp8(x.data(), y.data(), 768, group);
      EXPECT_EQ(Floats(y), FakeQuantised(x, group, true)) << deviation;
      const std::vector<BFloat16> once = y;
      FakeQuantFp8(y.data(), y.data(), 768, group);
      EXPECT_EQ(y, once);
    }
    FakeQuantFp4(x.data(), y.data(), 768);
    EXPECT_EQ(Floats(y), FakeQuantised(x, 32, false)) << deviation;
    const std::vector<BFloat16> once = y;
    FakeQuantFp4(y.data(), y.data(), 768);
    EXPECT_EQ(y, once);
  }
}

TEST(FakeQuantTest, NaNStaysNaN) {
  std::vector<BFloat16> x(128, BFloat16(1.0f));
  x[5] = BFloat16(kNaN);
  std::vector<BFloat16> y(128);
  FakeQuantFp8(x.data(), y.data(), 128, 128);
  EXPECT_TRUE(std::isnan(static_cast<float>(y[5])));
  EXPECT_EQ(static_cast<float>(y[6]), 1.0f);
}

TEST(HadamardTest, MatchesTheDefinition) {
  const std::vector<BFloat16> x = RandomValues<BFloat16>(128, 4);
  std::vector<BFloat16> y = x;
  Hadamard128(y.data());
  for (int i = 0; i < 128; ++i) {
    double sum = 0;
    for (int j = 0; j < 128; ++j) {
      const double sign = __builtin_popcount(i & j) % 2 == 0 ? 1 : -1;
      sum += sign * static_cast<double>(static_cast<float>(x[j]));
    }
    // BF16 has 8 significant bits; FP32 butterflies add far less.
    EXPECT_NEAR(static_cast<float>(y[i]), sum / std::sqrt(128.0),
                0.004 * std::fabs(sum) / 11 + 1e-5);
  }
}

TEST(DequantizeTest, Fp8BlocksUseTheScaleOfTheir128x128Block) {
  const int64_t rows = 130, cols = 257;
  std::vector<uint8_t> codes(rows * cols, 0x38);  // 1.0
  codes[129 * cols + 256] = 0xbc;                 // -1.5
  const std::vector<uint8_t> scales = {127, 128, 129, 126, 125, 124};
  std::vector<BFloat16> y(rows * cols);
  DequantizeFp8Blocks(View(codes, rows, cols), View(scales, 2, 3), View(y, rows, cols));
  EXPECT_EQ(static_cast<float>(y[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(y[127 * cols + 128]), 2.0f);
  EXPECT_EQ(static_cast<float>(y[128 * cols + 127]), 0.5f);
  EXPECT_EQ(static_cast<float>(y[129 * cols + 256]), -1.5f / 8);
}

TEST(DequantizeTest, Fp4LowNibbleIsTheEvenColumn) {
  std::vector<uint8_t> packed(32, 0x00);
  packed[0] = 0xf2;   // columns 0, 1 = 1, -6
  packed[16] = 0x07;  // column 32 = 6 in the second group
  const std::vector<uint8_t> scales = {128, 120};
  std::vector<BFloat16> y(64);
  DequantizeFp4Groups(View(packed, 1, 32), View(scales, 1, 2), View(y, 1, 64));
  EXPECT_EQ(static_cast<float>(y[0]), 2.0f);
  EXPECT_EQ(static_cast<float>(y[1]), -12.0f);
  EXPECT_EQ(static_cast<float>(y[32]), 6.0f / 128);
  EXPECT_EQ(static_cast<float>(y[33]), 0.0f);
}

}  // namespace
}  // namespace baton::kernels
