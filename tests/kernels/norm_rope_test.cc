#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/numeric.h"
#include "kernels/quantize.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/window_kv.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

constexpr RopeConfig kYarn = {.theta = 160000, .factor = 16};

double InverseRms(const BFloat16* x, int64_t n, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::pow(static_cast<float>(x[i]), 2.0);
  return 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
}

// Half a unit in the last of BF16's 8 bits, and a little for FP32 before the rounding.
void ExpectBf16Near(BFloat16 actual, double expected, double slack = 1e-6) {
  EXPECT_NEAR(static_cast<float>(actual), expected, std::fabs(expected) / 250 + slack);
}

TEST(RmsNormTest, MatchesTheFormula) {
  for (const int64_t n : {16, 128, 528}) {
    const int64_t rows = 130;
    const auto x = RandomValues<BFloat16>(rows * n, 1, 3.0f);
    const auto weight = RandomValues<float>(n, 2);
    std::vector<BFloat16> y(rows * n);
    RmsNorm({.x = View(x, rows, n), .weight = weight, .y = View(y, rows, n)}, TestPool());
    for (int64_t row = 0; row < rows; ++row) {
      const double factor = InverseRms(x.data() + row * n, n, 1e-6);
      for (int64_t i = 0; i < n; ++i) {
        ExpectBf16Near(y[row * n + i], static_cast<float>(x[row * n + i]) * factor * weight[i]);
      }
    }
  }
}

TEST(RmsNormTest, QuantisedOutputIsTheQuantisedPlainOutput) {
  const int64_t rows = 3, n = 256;
  const auto x = RandomValues<BFloat16>(rows * n, 3);
  const std::vector<float> weight(n, 0.7f);
  std::vector<BFloat16> y(rows * n), quantised(rows * n), alone(rows * n), expected(rows * n);
  RmsNorm({.x = View(x, rows, n),
           .weight = weight,
           .y = View(y, rows, n),
           .y_quantized = View(quantised, rows, n)},
          TestPool());
  RmsNorm({.x = View(x, rows, n), .weight = weight, .y_quantized = View(alone, rows, n)},
          TestPool());
  QuantizeActivations(View(std::as_const(y), rows, n), View(expected, rows, n), TestPool());
  EXPECT_EQ(quantised, expected);
  EXPECT_EQ(alone, expected);
  EXPECT_NE(y, expected);
}

TEST(RmsNormTest, ZerosStayZero) {
  std::vector<BFloat16> x(128);
  const std::vector<float> weight(128, 2.0f);
  RmsNorm({.x = View(x, 1, 128), .weight = weight, .y = View(x, 1, 128)}, TestPool());
  EXPECT_THAT(Floats(x), ::testing::Each(0.0f));
}

TEST(RopeTest, FrequenciesAreThoseOfTheReference) {
  const RopeTable yarn(kYarn);
  const auto f = yarn.frequencies();
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], 0.687656022f);
  EXPECT_FLOAT_EQ(f[15], 0.00363553858f);
  EXPECT_FLOAT_EQ(f[16], 0.002265625f);
  EXPECT_FLOAT_EQ(f[20], 2.96977778e-4f);
  EXPECT_FLOAT_EQ(f[24], 1.953125e-5f);
  EXPECT_FLOAT_EQ(f[25], 5.37231267e-6f);
  EXPECT_FLOAT_EQ(f[31], 5.68052904e-7f);
  const RopeTable plain({.theta = 10000});
  EXPECT_FLOAT_EQ(plain.frequencies()[1], 0.749894209f);
  EXPECT_FLOAT_EQ(plain.frequencies()[16], 0.01f);
  EXPECT_FLOAT_EQ(plain.frequencies()[31], 1.33352143e-4f);
}

TEST(RopeTest, LargeAnglesAreReducedExactly) {
  const RopeTable table({.theta = 10000});
  float cos_sin[kRopeDim];
  table.Fill(1000003, cos_sin);
  EXPECT_NEAR(cos_sin[0], std::cos(1000003.0), 1e-7);
  EXPECT_NEAR(cos_sin[kRopePairs], std::sin(1000003.0), 1e-7);
  const double angle = 1000003.0f * table.frequencies()[1];
  EXPECT_NEAR(cos_sin[1], std::cos(static_cast<double>(static_cast<float>(angle))), 1e-7);
}

TEST(RopeTest, RotatesInterleavedPairsAndBack) {
  const RopeTable table(kYarn);
  float cos_sin[kRopeDim];
  table.Fill(37, cos_sin);
  const auto x = RandomValues<BFloat16>(kRopeDim, 4);
  std::vector<BFloat16> y = x;
  RotateRow(y.data(), cos_sin);
  for (int i = 0; i < kRopePairs; ++i) {
    const double angle = 37.0 * table.frequencies()[i];
    const double a = static_cast<float>(x[2 * i]);
    const double b = static_cast<float>(x[2 * i + 1]);
    ExpectBf16Near(y[2 * i], a * std::cos(angle) - b * std::sin(angle), 1e-5);
    ExpectBf16Near(y[2 * i + 1], a * std::sin(angle) + b * std::cos(angle), 1e-5);
  }
  RotateRowBack(y.data(), cos_sin);
  for (int i = 0; i < kRopeDim; ++i) {
    EXPECT_NEAR(static_cast<float>(y[i]), static_cast<float>(x[i]), 0.03);
  }
}

TEST(QueryNormRopeTest, NormalisesEveryHeadAndRotatesItsLastChannels) {
  const int64_t rows = 3, heads = 2, dim = 128;
  auto q = RandomValues<BFloat16>(rows * heads * dim, 5, 4.0f);
  const std::vector<BFloat16> input = q;
  const RopeTable table(kYarn);
  const std::vector<int64_t> positions = {0, 5, 100000};
  std::vector<float> rope(rows * kRopeDim);
  table.Fill(positions, View(rope, rows, kRopeDim));
  QueryNormRope({.q = View(q, rows, heads * dim), .heads = 2, .rope = View(rope, rows, kRopeDim)},
                TestPool());
  for (int64_t vector = 0; vector < rows * heads; ++vector) {
    const BFloat16* source = input.data() + vector * dim;
    const double factor = InverseRms(source, dim, 1e-6);
    std::vector<BFloat16> expected(dim);
    for (int64_t i = 0; i < dim; ++i) {
      expected[i] = BFloat16(static_cast<float>(static_cast<float>(source[i]) * factor));
    }
    RotateRow(expected.data() + dim - kRopeDim, rope.data() + vector / heads * kRopeDim);
    for (int64_t i = 0; i < dim; ++i) {
      ExpectBf16Near(q[vector * dim + i], static_cast<float>(expected[i]), 0.02);
    }
  }
  InverseRope(View(q, rows, heads * dim), 2, View(std::as_const(rope), rows, kRopeDim), TestPool());
  for (int64_t vector = 0; vector < rows * heads; ++vector) {
    const double factor = InverseRms(input.data() + vector * dim, dim, 1e-6);
    for (int64_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(static_cast<float>(q[vector * dim + i]),
                  static_cast<float>(input[vector * dim + i]) * factor, 0.03);
    }
  }
}

TEST(WindowKvTest, SimulatesFp8OnAllButTheRotatedChannels) {
  const int64_t rows = 2, dim = 512;
  const auto input = RandomValues<BFloat16>(rows * dim, 6);
  const std::vector<float> weight(dim, 1.0f);
  const RopeTable table({.theta = 10000});
  std::vector<float> rope(rows * kRopeDim);
  table.Fill(std::vector<int64_t>{7, 8}, View(rope, rows, kRopeDim));
  std::vector<BFloat16> exact = input, reference = input;
  WindowKvParams params = {.kv = View(exact, rows, dim),
                           .weight = weight,
                           .rope = View(std::as_const(rope), rows, kRopeDim),
                           .numerics = Numerics::kExact};
  WindowKv(params, TestPool());
  params.kv = View(reference, rows, dim);
  params.numerics = Numerics::kReference;
  WindowKv(params, TestPool());
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<BFloat16> expected(exact.begin() + row * dim, exact.begin() + (row + 1) * dim);
    FakeQuantFp8(expected.data(), expected.data(), 448, 64);
    EXPECT_EQ(
        std::vector<BFloat16>(reference.begin() + row * dim, reference.begin() + (row + 1) * dim),
        expected);
  }
}

TEST(WriteRowsTest, KeepsTheNewestRowsOfEachPosition) {
  std::vector<float> memory(5 * 2, -1.0f);
  const RowRing<float> ring = {memory.data(), 5, 2};
  std::vector<float> rows;
  for (int i = 0; i < 7; ++i) rows.insert(rows.end(), {i * 1.0f, i * 10.0f});
  WriteRows(View(std::as_const(rows), 7, 2), 3, ring);
  for (int64_t position = 5; position < 10; ++position) {
    EXPECT_EQ(ring.Row(position)[0], static_cast<float>(position - 3));
    EXPECT_EQ(ring.Row(position)[1], static_cast<float>(position - 3) * 10);
  }
  WriteRows(MatrixView<const float>(rows.data(), 0, 2), 10, ring);
  EXPECT_EQ(ring.Row(10)[0], 2.0f);
}

}  // namespace
}  // namespace baton::kernels
