#include "engine/growth_policy.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GrowthPolicyTest, NobodyGivesWayWhenThePagesSuffice) {
  const std::vector<GrowthCandidate> candidates = {
      {.admitted = 7, .pages_held = 3, .pages_needed = 1},
      {.admitted = 2, .pages_held = 3, .pages_needed = 1}};
  const GrowthPlan plan = PlanGrowth(candidates, 2);
  EXPECT_THAT(plan.run, ElementsAre(1, 0));
  EXPECT_THAT(plan.preempt, IsEmpty());
}

TEST(GrowthPolicyTest, NoCandidatesMakeAnEmptyPlan) {
  EXPECT_THAT(PlanGrowth({}, 0).run, IsEmpty());
  EXPECT_THAT(PlanGrowth({}, 0).preempt, IsEmpty());
}

TEST(GrowthPolicyTest, TheYoungestGivesWayAndItsPagesServeTheOthers) {
  const std::vector<GrowthCandidate> candidates = {
      {.admitted = 1, .pages_held = 5, .pages_needed = 1},
      {.admitted = 3, .pages_held = 2, .pages_needed = 0},
      {.admitted = 2, .pages_held = 5, .pages_needed = 1}};
  const GrowthPlan plan = PlanGrowth(candidates, 0);
  EXPECT_THAT(plan.run, ElementsAre(0, 2));
  EXPECT_THAT(plan.preempt, ElementsAre(1));
}

TEST(GrowthPolicyTest, ItsOwnNeedGoesWithIt) {
  const std::vector<GrowthCandidate> candidates = {
      {.admitted = 1, .pages_held = 1, .pages_needed = 1},
      {.admitted = 2, .pages_held = 0, .pages_needed = 1}};
  const GrowthPlan plan = PlanGrowth(candidates, 1);
  EXPECT_THAT(plan.run, ElementsAre(0));
  EXPECT_THAT(plan.preempt, ElementsAre(1));
}

TEST(GrowthPolicyTest, YoungestFirstAndNoMoreThanItTakes) {
  std::vector<GrowthCandidate> candidates;
  for (uint64_t i = 0; i < 5; ++i) {
    candidates.push_back({.admitted = i, .pages_held = 1, .pages_needed = 1});
  }
  const GrowthPlan plan = PlanGrowth(candidates, 1);
  EXPECT_THAT(plan.preempt, ElementsAre(4, 3));
  EXPECT_THAT(plan.run, ElementsAre(0, 1, 2));
}

TEST(GrowthPolicyTest, NobodyHoldsPagesWhileWaitingForOneThatNobodyHereCanFree) {
  const std::vector<GrowthCandidate> candidates = {
      {.admitted = 1, .pages_held = 9, .pages_needed = 10}};
  const GrowthPlan plan = PlanGrowth(candidates, 0);
  EXPECT_THAT(plan.run, IsEmpty());
  EXPECT_THAT(plan.preempt, ElementsAre(0));
}

TEST(GrowthPolicyTest, TheOldestSkipsStepsWhileAYoungerOneIsPinned) {
  const std::vector<GrowthCandidate> candidates = {
      {.admitted = 1, .pages_held = 5, .pages_needed = 1},
      {.admitted = 2, .pages_held = 5, .pages_needed = 0},
      {.admitted = 3, .pages_held = 5, .pinned = true}};
  const GrowthPlan plan = PlanGrowth(candidates, 0);
  EXPECT_THAT(plan.run, ElementsAre(1, 2)) << "who needs nothing goes on";
  EXPECT_THAT(plan.skip, ElementsAre(0));
  EXPECT_THAT(plan.preempt, IsEmpty());
}

TEST(GrowthPolicyTest, WhoIsYoungerThanThePinnedOnesGivesWayBeforeAnybodySkips) {
  const std::vector<GrowthCandidate> candidates = {
      {.admitted = 1, .pages_held = 5, .pages_needed = 1},
      {.admitted = 2, .pages_held = 5, .pages_needed = 1},
      {.admitted = 3, .pages_held = 5, .pinned = true},
      {.admitted = 4, .pages_held = 1, .pages_needed = 0}};
  const GrowthPlan plan = PlanGrowth(candidates, 0);
  EXPECT_THAT(plan.preempt, ElementsAre(3));
  EXPECT_THAT(plan.skip, ElementsAre(1));
  EXPECT_THAT(plan.run, ElementsAre(0, 2));
}

TEST(GrowthPolicyTest, AnOlderPinnedOneProtectsNobody) {
  const std::vector<GrowthCandidate> candidates = {
      {.admitted = 1, .pages_held = 5, .pinned = true},
      {.admitted = 2, .pages_held = 5, .pages_needed = 1},
      {.admitted = 3, .pages_held = 5, .pages_needed = 0}};
  const GrowthPlan plan = PlanGrowth(candidates, 0);
  EXPECT_THAT(plan.preempt, ElementsAre(2));
  EXPECT_THAT(plan.skip, IsEmpty());
}

TEST(GrowthPolicyTest, AnyPlanIsAPartitionThatFitsAndPreemptsOnlyTheYoungest) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<GrowthCandidate> candidates(random() % 8);
    for (size_t i = 0; i < candidates.size(); ++i) {
      candidates[i] = {.admitted = i,
                       .pages_held = static_cast<int64_t>(random() % 4),
                       .pages_needed = static_cast<int64_t>(random() % 3),
                       .pinned = random() % 4 == 0};
      if (candidates[i].pinned) candidates[i].pages_needed = 0;
    }
    std::shuffle(candidates.begin(), candidates.end(), random);
    const auto free_pages = static_cast<int64_t>(random() % 5);
    const GrowthPlan plan = PlanGrowth(candidates, free_pages);

    std::set<size_t> all(plan.run.begin(), plan.run.end());
    all.insert(plan.skip.begin(), plan.skip.end());
    all.insert(plan.preempt.begin(), plan.preempt.end());
    ASSERT_EQ(all.size(), candidates.size());
    ASSERT_EQ(plan.run.size() + plan.skip.size() + plan.preempt.size(), candidates.size());
    int64_t left = free_pages;
    for (const size_t i : plan.preempt) left += candidates[i].pages_held;
    for (const size_t i : plan.run) left -= candidates[i].pages_needed;
    ASSERT_GE(left, 0);
    for (const size_t victim : plan.preempt) {
      ASSERT_FALSE(candidates[victim].pinned);
      for (const size_t other : plan.run) {
        ASSERT_GT(candidates[victim].admitted, candidates[other].admitted);
      }
      for (const size_t other : plan.skip) {
        ASSERT_GT(candidates[victim].admitted, candidates[other].admitted);
      }
    }
    for (const size_t skipper : plan.skip) {
      ASSERT_GT(candidates[skipper].pages_needed, 0);
      ASSERT_TRUE(std::any_of(plan.run.begin(), plan.run.end(), [&](size_t other) {
        return candidates[other].pinned &&
               candidates[other].admitted > candidates[skipper].admitted;
      }));
    }
    if (!plan.preempt.empty() &&
        plan.skip.empty()) {  // sparing the oldest victim would not have fitted
      const GrowthCandidate& spared = candidates[plan.preempt.back()];
      ASSERT_LT(left - spared.pages_held - spared.pages_needed, 0);
    }
  }
}

}  // namespace
}  // namespace baton::engine
