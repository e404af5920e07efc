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

TEST(StepBoardTest, PassesThatMayGrowGetTheShapeOfTheLargest) {
  StepBoard board(3);
  const auto say = [&](int rank, const Wish& wish) { board.Say(rank, board.decided(), wish); };
  const Wish small{.rows = 8, .sequence_rows = 2, .positions = 4096};
  const Wish large{.rows = 16, .sequence_rows = 1, .positions = 8192};
  say(0, small);
  say(1, large);
  say(2, kRest);
  Step step = *board.Decide();
  EXPECT_TRUE(step.same_shape());
  EXPECT_THAT(step.rows, ElementsAre(16, 16, 0));
  EXPECT_EQ(step.sequence_rows, 2);
  EXPECT_EQ(step.positions, 8192);
  // One that cannot grow leaves all as they are.
  say(0, small);
  say(1, {.rows = 900});
  say(2, kRest);
  step = *board.Decide();
  EXPECT_FALSE(step.same_shape());
  EXPECT_THAT(step.rows, ElementsAre(8, 900, 0));
  EXPECT_EQ(step.positions, 0);
  // One of another kind, whose turn comes later, has no say.
  say(0, {.kind = PassKind::kDraft, .rows = 4, .sequence_rows = 1});
  say(1, {.rows = 900});
  say(2, {.kind = PassKind::kDraft, .rows = 2, .sequence_rows = 2});
  step = *board.Decide();
  EXPECT_TRUE(step.same_shape());
  EXPECT_THAT(step.rows, ElementsAre(4, 0, 4));
  EXPECT_EQ(step.sequence_rows, 2);
}

TEST(StepBoardTest, AStepGrantsAWishOrLetsTheRankJoin) {
  const Wish fixed{.rows = 3};
  EXPECT_TRUE(Grants({.kind = PassKind::kDraft, .rows = {0, 1}}, 0, fixed));
  EXPECT_TRUE(Grants({.kind = PassKind::kTrunk, .rows = {3, 1}}, 0, fixed));
  EXPECT_FALSE(Grants({.kind = PassKind::kDraft, .rows = {3, 1}}, 0, fixed));
  EXPECT_FALSE(Grants({.kind = PassKind::kTrunk, .rows = {4, 1}}, 0, fixed));
  const auto grown = [](int64_t rows, int64_t sequence_rows, int64_t positions) {
    return Step{.kind = PassKind::kTrunk,
                .rows = {rows, rows},
                .sequence_rows = sequence_rows,
                .positions = positions};
  };
  EXPECT_FALSE(Grants(grown(3, 1, 4096), 0, fixed));
  const Wish growing{.rows = 4, .sequence_rows = 2, .positions = 4096};
  EXPECT_TRUE(Grants({.kind = PassKind::kTrunk, .rows = {4, 900}}, 0, growing));
  EXPECT_TRUE(Grants(grown(256, 8, 8192), 0, growing));
  EXPECT_FALSE(Grants(grown(2, 2, 4096), 0, growing));
  EXPECT_FALSE(Grants(grown(4, 1, 4096), 0, growing));
  EXPECT_FALSE(Grants(grown(4, 2, 2048), 0, growing));
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
