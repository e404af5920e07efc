#include "engine/parallel/step_board.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;

constexpr Wish kRest{.rows = Wish::kResting};

TEST(StepBoardTest, DecidesOnceAllHaveSpokenAndOneWantsSomething) {
  StepBoard board(3);
  board.Say(0, 0, kRest);
  board.Say(1, 0, {.kind = PassKind::kTrunk, .rows = 5});
  EXPECT_FALSE(board.Decide());
  EXPECT_THAT(board.Busy(), ElementsAre(2));
  board.Say(2, 0, {.kind = PassKind::kTrunk, .rows = 7});
  const std::optional<Step> step = board.Decide();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->number, 1u);
  EXPECT_EQ(step->kind, PassKind::kTrunk);
  EXPECT_THAT(step->rows, ElementsAre(0, 5, 7));
  EXPECT_EQ(step->total(), 12);
  EXPECT_EQ(step->begin(2), 5);
  EXPECT_FALSE(board.Decide());
  EXPECT_THAT(board.Busy(), ElementsAre(0, 1, 2));
}

TEST(StepBoardTest, NothingRunsWhileAllRest) {
  StepBoard board(2);
  board.Say(0, 0, kRest);
  board.Say(1, 0, kRest);
  EXPECT_FALSE(board.Decide());
  board.Say(0, 0, {.kind = PassKind::kDraft, .rows = 1});  // it has got work since
  EXPECT_TRUE(board.Decide());
}

TEST(StepBoardTest, DraftsGoFirstAndTrunkPassesThenCoincide) {
  StepBoard board(2);
  board.Say(0, 0, {.kind = PassKind::kTrunk, .rows = 100});
  board.Say(1, 0, {.kind = PassKind::kDraft, .rows = 3});
  std::optional<Step> step = board.Decide();
  EXPECT_EQ(step->kind, PassKind::kDraft);
  EXPECT_THAT(step->rows, ElementsAre(0, 3));
  board.Say(0, 1, {.kind = PassKind::kTrunk, .rows = 100});
  board.Say(1, 1, {.kind = PassKind::kTrunk, .rows = 4});
  step = board.Decide();
  EXPECT_EQ(step->kind, PassKind::kTrunk);
  EXPECT_THAT(step->rows, ElementsAre(100, 4));
}

TEST(StepBoardTest, WhatIsSaidTooLateIsVoid) {
  StepBoard board(2);
  board.Say(0, 0, kRest);
  board.Say(1, 0, {.rows = 1});
  EXPECT_TRUE(board.Decide());
  board.Say(0, 0, {.rows = 9});  // before it heard of the step
  board.Say(1, 1, kRest);
  EXPECT_FALSE(board.Decide());
  board.Say(0, 1, {.rows = 9});
  EXPECT_THAT(board.Decide()->rows, ElementsAre(9, 0));
}

}  // namespace
}  // namespace baton::engine
