#include "kernels/hyper_connection.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

constexpr int kD = 48;
constexpr double kEps = 1e-6;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

struct Mixes {
  double pre[4];
  double post[4];
  double c[4][4];
};

struct Weights {
  std::vector<float> fn = RandomValues<float>(kMixes * kStreams * kD, 1, 0.2f);
  std::vector<float> scale = {0.7f, 0.9f, 1.3f};
  std::vector<float> base = RandomValues<float>(kMixes, 2);
  PackedMatrix packed = PackedMatrix::FromRows(View(std::as_const(fn), kMixes, kStreams* kD));
};

// The projections times 1 / rms, in double.
std::vector<double> Projections(const std::vector<float>& fn, int mixes, const BFloat16* x) {
  double square = 0;
  for (int i = 0; i < kStreams * kD; ++i) square += std::pow(static_cast<float>(x[i]), 2.0);
  const double r = 1.0 / std::sqrt(square / (kStreams * kD) + kEps);
  std::vector<double> m(mixes);
  for (int mix = 0; mix < mixes; ++mix) {
    for (int i = 0; i < kStreams * kD; ++i) {
      m[mix] += static_cast<double>(fn[mix * kStreams * kD + i]) * static_cast<float>(x[i]) * r;
    }
  }
  return m;
}

Mixes Reference(const Weights& w, const BFloat16* x) {
  const std::vector<double> m = Projections(w.fn, kMixes, x);
  Mixes mixes;
  for (int j = 0; j < 4; ++j) {
    mixes.pre[j] = Sigmoid(m[j] * w.scale[0] + w.base[j]) + kEps;
    mixes.post[j] = 2 * Sigmoid(m[4 + j] * w.scale[1] + w.base[4 + j]);
    double sum = 0;
    for (int k = 0; k < 4; ++k) {
      mixes.c[j][k] = std::exp(m[8 + 4 * j + k] * w.scale[2] + w.base[8 + 4 * j + k]);
      sum += mixes.c[j][k];
    }
    for (double& c : mixes.c[j]) c = c / sum + kEps;
  }
  for (int step = 0; step < 39; ++step) {
    const bool columns = step % 2 == 0;
    for (int a = 0; a < 4; ++a) {
      double sum = kEps;
      for (int b = 0; b < 4; ++b) sum += columns ? mixes.c[b][a] : mixes.c[a][b];
      for (int b = 0; b < 4; ++b) (columns ? mixes.c[b][a] : mixes.c[a][b]) /= sum;
    }
  }
  return mixes;
}

class HyperConnectionTest : public ::testing::TestWithParam<int> {};

TEST_P(HyperConnectionTest, PreAndPostMatchTheFormula) {
  const int64_t rows = GetParam();
  const Weights w;
  const auto streams = RandomValues<BFloat16>(rows * kStreams * kD, 3);
  std::vector<BFloat16> x(rows * kD);
  std::vector<float> post(rows * 4), comb(rows * 16);
  HcPre({.streams = View(streams, rows, kStreams * kD),
         .fn = &w.packed,
         .scale = w.scale,
         .base = w.base,
         .x = View(x, rows, kD),
         .post = View(post, rows, 4),
         .comb = View(comb, rows, 16)},
        TestPool());
  const auto output = RandomValues<BFloat16>(rows * kD, 4);
  std::vector<BFloat16> next = streams;
  HcPost({.output = View(output, rows, kD),
          .post = View(std::as_const(post), rows, 4),
          .comb = View(std::as_const(comb), rows, 16),
          .streams = View(next, rows, kStreams * kD)},
         TestPool());
  for (int64_t row = 0; row < rows; ++row) {
    const BFloat16* u = streams.data() + row * kStreams * kD;
    const Mixes mixes = Reference(w, u);
    for (int k = 0; k < 4; ++k) {
      EXPECT_NEAR(post[row * 4 + k], mixes.post[k], 1e-5);
      double column_sum = 0;
      for (int j = 0; j < 4; ++j) {
        EXPECT_NEAR(comb[row * 16 + j * 4 + k], mixes.c[j][k], 1e-5);
        column_sum += comb[row * 16 + j * 4 + k];
      }
      EXPECT_NEAR(column_sum, 1, 1e-5);  // columns are normalised last
    }
    for (int c = 0; c < kD; ++c) {
      double sum = 0;
      for (int j = 0; j < 4; ++j) sum += mixes.pre[j] * static_cast<float>(u[j * kD + c]);
      EXPECT_NEAR(static_cast<float>(x[row * kD + c]), sum, std::fabs(sum) / 250 + 1e-5);
      for (int k = 0; k < 4; ++k) {
        // C acts transposed: the sum runs over its first index.
        double mixed = mixes.post[k] * static_cast<float>(output[row * kD + c]);
        for (int j = 0; j < 4; ++j) mixed += mixes.c[j][k] * static_cast<float>(u[j * kD + c]);
        EXPECT_NEAR(static_cast<float>(next[(row * 4 + k) * kD + c]), mixed,
                    std::fabs(mixed) / 250 + 1e-4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, HyperConnectionTest, ::testing::Values(0, 1, 15, 16, 17, 40));

TEST(HcPreTest, ATokenDoesNotDependOnItsNeighbours) {
  const int64_t rows = 21;
  const Weights w;
  const auto streams = RandomValues<BFloat16>(rows * kStreams * kD, 5);
  const auto run = [&](int64_t first, int64_t count) {
    std::vector<BFloat16> x(count * kD);
    std::vector<float> post(count * 4), comb(count * 16);
    HcPre({.streams = View(streams, rows, kStreams * kD).Rows(first, count),
           .fn = &w.packed,
           .scale = w.scale,
           .base = w.base,
           .x = View(x, count, kD),
           .post = View(post, count, 4),
           .comb = View(comb, count, 16)},
          TestPool());
    return comb;
  };
  const std::vector<float> all = run(0, rows);
  for (int64_t row = 0; row < rows; ++row) {
    EXPECT_EQ(run(row, 1), std::vector<float>(all.begin() + row * 16, all.begin() + row * 16 + 16));
  }
}

TEST(HcHeadTest, MatchesTheFormula) {
  const int64_t rows = 5;
  const auto fn = RandomValues<float>(kStreams * kStreams * kD, 6, 0.2f);
  const PackedMatrix packed = PackedMatrix::FromRows(View(fn, kStreams, kStreams * kD));
  const std::vector<float> base = {0.1f, -0.2f, 0.3f, 0.0f};
  const auto streams = RandomValues<BFloat16>(rows * kStreams * kD, 7);
  std::vector<BFloat16> x(rows * kD);
  HcHead({.streams = View(streams, rows, kStreams * kD),
          .fn = &packed,
          .scale = 0.8f,
          .base = base,
          .x = View(x, rows, kD)},
         TestPool());
  for (int64_t row = 0; row < rows; ++row) {
    const BFloat16* u = streams.data() + row * kStreams * kD;
    const std::vector<double> m = Projections(fn, kStreams, u);
    for (int c = 0; c < kD; ++c) {
      double sum = 0;
      for (int j = 0; j < 4; ++j) {
        sum += (Sigmoid(m[j] * 0.8 + base[j]) + kEps) * static_cast<float>(u[j * kD + c]);
      }
      EXPECT_NEAR(static_cast<float>(x[row * kD + c]), sum, std::fabs(sum) / 250 + 1e-5);
    }
  }
}

}  // namespace
}  // namespace baton::kernels
