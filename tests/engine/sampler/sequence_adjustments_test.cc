#include "engine/sampler/sequence_adjustments.h"

#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int64_t kPromptTokens = 3;
const std::vector<int32_t> kTokens = {7, 8, 7, /* generated: */ 9, 8, 9};

struct Change {
  float repetition;
  float add;
};

std::map<int32_t, Change> After(SequenceAdjustments& adjustments,
                                const std::vector<int32_t>& drafts = {}) {
  std::map<int32_t, Change> changes;
  for (const kernels::LogitAdjustment& a : adjustments.After(drafts)) {
    EXPECT_EQ(a.row, 0);
    EXPECT_TRUE(changes.emplace(a.token, Change{a.repetition, a.add}).second) << a.token;
  }
  return changes;
}

std::map<int32_t, Change> Changes(const SamplingParams& params,
                                  const std::vector<int32_t>& drafts = {}) {
  SequenceAdjustments adjustments(params, kPromptTokens);
  adjustments.Follow(kTokens);
  return After(adjustments, drafts);
}

TEST(SequenceAdjustmentsTest, AreWantedForWhateverIsNotNeutral) {
  EXPECT_FALSE(SequenceAdjustments::Wanted({}));
  EXPECT_TRUE(SequenceAdjustments::Wanted({.presence_penalty = -1}));
  EXPECT_TRUE(SequenceAdjustments::Wanted({.frequency_penalty = 0.1f}));
  EXPECT_TRUE(SequenceAdjustments::Wanted({.repetition_penalty = 1.1f}));
  EXPECT_TRUE(SequenceAdjustments::Wanted({.logit_bias = {{.token = 0, .bias = 0}}}));
}

TEST(SequenceAdjustmentsTest, PresenceAndFrequencyCountGeneratedTokensOnly) {
  EXPECT_THAT(Changes({.presence_penalty = 0.5f}),
              ElementsAre(Pair(8, FieldsAre(1, -0.5f)), Pair(9, FieldsAre(1, -0.5f))));
  EXPECT_THAT(Changes({.frequency_penalty = 0.5f}),
              ElementsAre(Pair(8, FieldsAre(1, -0.5f)), Pair(9, FieldsAre(1, -1))));
  EXPECT_THAT(Changes({.presence_penalty = -2, .frequency_penalty = 0.25f}),
              ElementsAre(Pair(8, FieldsAre(1, 1.75f)), Pair(9, FieldsAre(1, 1.5f))));
}

TEST(SequenceAdjustmentsTest, RepetitionLooksAtThePromptTooAndNotAtHowOften) {
  EXPECT_THAT(Changes({.repetition_penalty = 1.5f}),
              ElementsAre(Pair(7, FieldsAre(1.5f, 0)), Pair(8, FieldsAre(1.5f, 0)),
                          Pair(9, FieldsAre(1.5f, 0))));
}

TEST(SequenceAdjustmentsTest, BiasesComeBesidePenaltiesWhetherTheTokenHasComeOrNot) {
  EXPECT_THAT(Changes({.frequency_penalty = 1,
                       .logit_bias = {{.token = 9, .bias = 10}, {.token = 3, .bias = -100}}}),
              ElementsAre(Pair(3, FieldsAre(1, -100)), Pair(8, FieldsAre(1, -1)),
                          Pair(9, FieldsAre(1, 8))));
}

TEST(SequenceAdjustmentsTest, DraftsCountForOneCallAndOnce) {
  SequenceAdjustments adjustments({.frequency_penalty = 1}, kPromptTokens);
  adjustments.Follow(kTokens);
  const auto with =
      ElementsAre(Pair(4, FieldsAre(1, -2)), Pair(8, FieldsAre(1, -1)), Pair(9, FieldsAre(1, -3)));
  EXPECT_THAT(After(adjustments, {4, 9, 4}), with);
  EXPECT_THAT(After(adjustments),
              ElementsAre(Pair(8, FieldsAre(1, -1)), Pair(9, FieldsAre(1, -2))));
  std::vector<int32_t> grown = kTokens;
  grown.insert(grown.end(), {4, 9, 4});  // accepted
  adjustments.Follow(grown);
  EXPECT_THAT(After(adjustments), with);
}

TEST(SequenceAdjustmentsTest, FollowingStepByStepIsFollowingAtOnce) {
  const SamplingParams params{.presence_penalty = 1, .repetition_penalty = 0.5f};
  SequenceAdjustments adjustments(params, kPromptTokens);
  for (size_t known = 1; known <= kTokens.size(); ++known) {
    adjustments.Follow(std::span(kTokens).first(known));
  }
  EXPECT_THAT(After(adjustments),
              ElementsAre(Pair(7, FieldsAre(0.5f, 0)), Pair(8, FieldsAre(0.5f, -1)),
                          Pair(9, FieldsAre(0.5f, -1))));
}

TEST(SequenceAdjustmentsTest, ABiasOfZeroChangesNothing) {
  EXPECT_THAT(Changes({.logit_bias = {{.token = 9, .bias = 0}}}), IsEmpty());
}

}  // namespace
}  // namespace baton::engine
