#include "kernels/logit_adjustments.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/logit_adjustments_case.h"

namespace baton::kernels {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Adjusted(std::vector<float> logits, int64_t rows,
                            const std::vector<LogitAdjustment>& adjustments) {
  AdjustLogits(adjustments, View(logits, rows, std::ssize(logits) / rows));
  return logits;
}

TEST(LogitAdjustmentsTest, RepetitionMakesATokenLessLikelyWhateverTheSignOfItsLogit) {
  EXPECT_THAT(Adjusted({3, -3, 0, 3, -3}, 1,
                       {{.token = 0, .repetition = 2},
                        {.token = 1, .repetition = 2},
                        {.token = 2, .repetition = 2},
                        {.token = 3, .repetition = 0.5f}}),
              ElementsAre(1.5f, -6, 0, 6, -3));
}

TEST(LogitAdjustmentsTest, WhatIsAddedIsAddedAfterTheRepetition) {
  EXPECT_THAT(Adjusted({1, 4, 1, 4}, 2, {{.row = 1, .token = 1, .repetition = 2, .add = -3}}),
              ElementsAre(1, 4, 1, -1));
}

TEST(LogitAdjustmentsTest, ATokenThatCannotComeStillCannot) {
  EXPECT_THAT(Adjusted({-kInfinity, 1}, 1, {{.token = 0, .repetition = 1.5f, .add = 100}}),
              ElementsAre(-kInfinity, 1));
}

TEST(LogitAdjustmentsTest, IsAPlainLoop) {
  for (const LogitAdjustmentsCase& shape : kLogitAdjustmentsCases) {
    const std::vector<float> logits = shape.Logits();
    const std::vector<LogitAdjustment> adjustments = shape.Adjustments();
    std::vector<float> expected = logits;
    for (const LogitAdjustment& a : adjustments) {
      volatile float value = expected[a.row * shape.vocabulary + a.token];  // rounded each time
      value = value > 0 ? value / a.repetition : value * a.repetition;
      expected[a.row * shape.vocabulary + a.token] = value + a.add;
    }
    EXPECT_EQ(Adjusted(logits, shape.rows, adjustments), expected)
        << shape.rows << " rows, " << adjustments.size() << " adjustments";
  }
}

}  // namespace
}  // namespace baton::kernels
