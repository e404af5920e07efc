#include "kernels/logprobs.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<TokenLogprob> Compute(const std::vector<float>& logits, int32_t token, size_t top) {
  std::vector<TokenLogprob> row(1 + top, {.token = 12345, .logprob = 1});
  Logprobs(logits, token, row);
  return row;
}

std::vector<int32_t> Ids(const std::vector<TokenLogprob>& row) {
  std::vector<int32_t> ids;
  for (const TokenLogprob& entry : row) ids.push_back(entry.token);
  return ids;
}

TEST(LogprobsTest, TwoEquallyLikelyTokensHaveHalfEach) {
  const auto row = Compute({-kInfinity, 100, 100}, 2, 2);
  EXPECT_THAT(Ids(row), ElementsAre(2, 1, 2));
  for (const TokenLogprob& entry : row) EXPECT_FLOAT_EQ(entry.logprob, std::log(0.5f));
}

TEST(LogprobsTest, TheChosenTokenComesFirstThoughOthersAreLikelier) {
  EXPECT_THAT(Ids(Compute({0, 3, 1, 2}, 0, 3)), ElementsAre(0, 1, 3, 2));
}

TEST(LogprobsTest, OnlyTheChosenTokenWhereNoOthersAreAskedFor) {
  const auto row = Compute({1, 1, 1, 1}, 3, 0);
  ASSERT_EQ(row.size(), 1u);
  EXPECT_FLOAT_EQ(row[0].logprob, -std::log(4.0f));
}

TEST(LogprobsTest, EqualLogitsComeByAscendingIdAndBothZerosAreEqual) {
  EXPECT_THAT(Ids(Compute({-1, 0.0f, 5, -0.0f, 5, 0.0f}, 0, 5)), ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(LogprobsTest, WhatCannotComeHasMinusInfinityAndMissingIdsAreMarked) {
  const auto row = Compute({-kInfinity, 2}, 1, 3);
  EXPECT_THAT(Ids(row), ElementsAre(1, 1, 0, -1));
  EXPECT_EQ(row[1].logprob, 0);
  EXPECT_EQ(row[2].logprob, -kInfinity);
  EXPECT_EQ(row[3].logprob, -kInfinity);
}

TEST(LogprobsTest, ProbabilitiesOfAllTokensSumToOneHoweverLargeTheLogitsAre) {
  for (const float shift : {0.0f, 1e4f, -1e4f}) {
    std::vector<float> logits = RandomValues<float>(129'280, 1, 5.0f);
    for (float& logit : logits) logit += shift;
    const auto row = Compute(logits, 0, logits.size());
    double sum = 0;
    for (size_t i = 1; i < row.size(); ++i) sum += std::exp(static_cast<double>(row[i].logprob));
    EXPECT_NEAR(sum, 1, 1e-6) << shift;
  }
}

}  // namespace
}  // namespace baton::kernels
