#include "kernels/moe.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/numeric.h"
#include "kernels/router.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

double Score(double logit) { return std::sqrt(std::log1p(std::exp(logit))); }

TEST(RouterTest, BiasChoosesButDoesNotWeigh) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f, 3.0f};
  const std::vector<float> bias = {100.0f, 0.0f, 50.0f, 0.0f};
  std::vector<int32_t> experts(2);
  std::vector<float> weights(2);
  Router({.logits = View(logits, 1, 4),
          .bias = bias,
          .scale = 1.5f,
          .experts = View(experts, 1, 2),
          .weights = View(weights, 1, 2)},
         TestPool());
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 2}));
  const double sum = Score(0) + Score(2);
  EXPECT_NEAR(weights[0], Score(0) / sum * 1.5, 1e-6);
  EXPECT_NEAR(weights[1], Score(2) / sum * 1.5, 1e-6);
}

TEST(RouterTest, TiesGoToTheLowerExpertAndLargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {500.0f, 500.0f, 500.0f, -500.0f};
  const std::vector<float> bias(4, 0.0f);
  std::vector<int32_t> experts(2);
  std::vector<float> weights(2);
  Router({.logits = View(logits, 1, 4),
          .bias = bias,
          .experts = View(experts, 1, 2),
          .weights = View(weights, 1, 2)},
         TestPool());
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(weights, (std::vector<float>{0.5f, 0.5f}));
}

TEST(RouterTest, HashLayersTakeTheExpertsOfTheToken) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f, 0.5f, 0.5f, 0.5f};
  const std::vector<int32_t> table = {0, 1, 2, 0, 1, 2};
  const std::vector<int32_t> tokens = {1, 2};
  std::vector<int32_t> experts(4);
  std::vector<float> weights(4);
  Router({.logits = View(logits, 2, 3),
          .hash_experts = View(table, 3, 2),
          .tokens = tokens,
          .experts = View(experts, 2, 2),
          .weights = View(weights, 2, 2)},
         TestPool());
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 2, 1, 2}));
  EXPECT_NEAR(weights[1], Score(2) / (Score(0) + Score(2)), 1e-6);
  EXPECT_EQ(weights[2], 0.5f);
}

constexpr int64_t kD = 128;
constexpr int64_t kF = 128;

struct Expert {
  explicit Expert(uint32_t seed)
      : gate_up(RandomValues<BFloat16>(2 * kF * kD, seed, 0.1f)),
        down(RandomValues<BFloat16>(kD * kF, seed + 1, 0.1f)) {}

  ExpertWeights Packed() const {
    return {PackedMatrix::FromRows(View(gate_up, 2 * kF, kD)),
            PackedMatrix::FromRows(View(down, kD, kF))};
  }

  static float Dot(const BFloat16* a, const BFloat16* b, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum = std::fma(static_cast<float>(a[i]), static_cast<float>(b[i]), sum);
    }
    return RoundToBf16(sum);
  }

  std::vector<float> Apply(const BFloat16* x, float weight, float limit) const {
    std::vector<BFloat16> v(kF);
    for (int64_t i = 0; i < kF; ++i) {
      const float a = std::fmin(Dot(x, gate_up.data() + i * kD, kD), limit);
      const float b =
          std::fmax(std::fmin(Dot(x, gate_up.data() + (kF + i) * kD, kD), limit), -limit);
      v[i] = BFloat16(weight * (a / (1.0f + std::exp(-a)) * b));
    }
    FakeQuantFp8(v.data(), v.data(), kF, 128);
    std::vector<float> y(kD);
    for (int64_t i = 0; i < kD; ++i) y[i] = Dot(v.data(), down.data() + i * kF, kF);
    return y;
  }

  std::vector<BFloat16> gate_up;
  std::vector<BFloat16> down;
};

class MoeTest : public ::testing::TestWithParam<int> {};

TEST_P(MoeTest, MatchesTheFormula) {
  const int64_t rows = GetParam();
  const int experts = 5, k = 2;
  const float limit = 0.6f;  // small, so that the clamps matter
  std::vector<Expert> routed;
  std::vector<ExpertWeights> packed;
  for (int e = 0; e < experts; ++e) {
    routed.emplace_back(10 * e + 1);
    packed.push_back(routed.back().Packed());
  }
  const Expert shared(1000);
  const ExpertWeights packed_shared = shared.Packed();
  const auto x = RandomValues<BFloat16>(rows * kD, 7);
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    ids.push_back(static_cast<int32_t>(row % 3));  // expert 3 gets no row
    ids.push_back(4);                              // expert 4 gets all
  }
  const auto weights = RandomValues<float>(rows * k, 8);
  std::vector<BFloat16> out(rows * kD);
  Moe({.x = View(x, rows, kD),
       .experts = View(std::as_const(ids), rows, k),
       .weights = View(weights, rows, k),
       .routed = packed,
       .shared = &packed_shared,
       .limit = limit,
       .out = View(out, rows, kD)},
      TestPool());
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> sum(kD, 0.0f);
    const auto add = [&](const std::vector<float>& y) {
      for (int64_t i = 0; i < kD; ++i) sum[i] += y[i];
    };
    for (int64_t i = row * k; i < (row + 1) * k; ++i) {
      add(routed[ids[i]].Apply(x.data() + row * kD, weights[i], limit));
    }
    add(shared.Apply(x.data() + row * kD, 1.0f, limit));
    for (int64_t i = 0; i < kD; ++i) {
      // An activation that lands next to a rounding boundary of its FP8 grid may differ by a step.
      EXPECT_NEAR(static_cast<float>(out[row * kD + i]), sum[i], std::fabs(sum[i]) / 100 + 4e-3);
    }
  }
}

// Two experts a row: whichever ranks they lie on, the sum has one order.
TEST_P(MoeTest, OverRanksHasTheBitsOfOne) {
  const int64_t rows = GetParam();
  const int experts = 5, k = 2;
  std::vector<ExpertWeights> packed;
  for (int e = 0; e < experts; ++e) packed.push_back(Expert(10 * e + 1).Packed());
  const ExpertWeights shared = Expert(1000).Packed();
  const auto x = RandomValues<BFloat16>(rows * kD, 7);
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    ids.push_back(static_cast<int32_t>(row % 3));
    ids.push_back(static_cast<int32_t>(3 + row % 2));
  }
  const auto weights = RandomValues<float>(rows * k, 8);
  std::vector<BFloat16> expected(rows * kD);
  Moe({.x = View(x, rows, kD),
       .experts = View(std::as_const(ids), rows, k),
       .weights = View(weights, rows, k),
       .routed = packed,
       .shared = &shared,
       .out = View(expected, rows, kD)},
      TestPool());
  const std::vector<int> begin = {0, 2, 2, 5};  // the rank in the middle has none
  std::vector<std::vector<float>> sums;
  std::vector<MatrixView<const float>> views;
  for (size_t rank = 0; rank + 1 < begin.size(); ++rank) {
    sums.emplace_back(rows * kD);
    MoePart({.x = View(x, rows, kD),
             .experts = View(std::as_const(ids), rows, k),
             .weights = View(weights, rows, k),
             .first_expert = begin[rank],
             .routed = std::span(packed).subspan(begin[rank], begin[rank + 1] - begin[rank]),
             .sum = View(sums.back(), rows, kD)},
            TestPool());
  }
  for (const auto& sum : sums) views.push_back(View(sum, rows, kD));
  std::vector<BFloat16> out(rows * kD);
  MoeJoin({.x = View(x, rows, kD), .sums = views, .shared = &shared, .out = View(out, rows, kD)},
          TestPool());
  for (int64_t i = 0; i < rows * kD; ++i) ASSERT_EQ(out[i].bits, expected[i].bits) << i;
}

INSTANTIATE_TEST_SUITE_P(Rows, MoeTest, ::testing::Values(0, 1, 2, 50, 131));

}  // namespace
}  // namespace baton::kernels
