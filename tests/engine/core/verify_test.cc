#include "engine/verify.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kEos = 1;
constexpr size_t kVocab = 16;
constexpr SequenceLimits kLimits = {.prompt_tokens = 10, .max_context = 100, .eos_token_id = kEos};

SamplingParams Greedy(uint32_t max_tokens = 50) {
  return {.temperature = 0, .max_tokens = max_tokens};
}

Verified Verify(const std::vector<int32_t>& sampled, const std::vector<int32_t>& drafts,
                const SamplingParams& params, int64_t tokens = 11) {
  return VerifyDrafts({.sampled = sampled, .drafts = drafts, .tokens = tokens}, params, kLimits);
}

TEST(VerifyTest, WithoutDraftsOneTokenIsSampled) {
  const Verified verified = Verify({7}, {}, Greedy());
  EXPECT_THAT(verified.new_tokens, ElementsAre(7));
  EXPECT_EQ(verified.accepted, 0);
  EXPECT_EQ(verified.finish, Finish::kNo);
}

TEST(VerifyTest, AcceptedDraftsAreFollowedByOneMoreToken) {
  const Verified verified = Verify({7, 8, 9}, {7, 8}, Greedy());
  EXPECT_THAT(verified.new_tokens, ElementsAre(7, 8, 9));
  EXPECT_EQ(verified.accepted, 2);
}

TEST(VerifyTest, ARejectedDraftIsReplacedAndEndsTheStep) {
  const Verified verified = Verify({7, 8, 9}, {7, 3}, Greedy());
  EXPECT_THAT(verified.new_tokens, ElementsAre(7, 8));
  EXPECT_EQ(verified.accepted, 1);
  EXPECT_THAT(Verify({7, 8, 9}, {2, 8}, Greedy()).new_tokens, ElementsAre(7));
}

TEST(VerifyTest, AStopTokenDropsTheDraftsAfterIt) {
  SamplingParams params = Greedy();
  params.stop_token_ids = {8};
  const Verified verified = Verify({7, 8, 9}, {7, 8}, params);
  EXPECT_THAT(verified.new_tokens, ElementsAre(7, 8));
  EXPECT_EQ(verified.accepted, 2);
  EXPECT_EQ(verified.finish, Finish::kStop);
}

TEST(VerifyTest, EndOfSequenceStopsUnlessItIsIgnored) {
  SamplingParams params = Greedy();
  EXPECT_EQ(Verify({kEos, 8}, {kEos}, params).finish, Finish::kStop);
  params.ignore_eos = true;
  EXPECT_THAT(Verify({kEos, 8}, {kEos}, params).new_tokens, ElementsAre(kEos, 8));
}

TEST(VerifyTest, NeverExceedsMaxTokens) {
  const Verified verified = Verify({7, 8, 9}, {7, 8}, Greedy(/*max_tokens=*/3), /*tokens=*/11);
  EXPECT_THAT(verified.new_tokens, ElementsAre(7, 8));
  EXPECT_EQ(verified.finish, Finish::kLength);
}

TEST(VerifyTest, TheContextEndsASequenceToo) {
  const Verified verified = Verify({7, 8, 9}, {7, 8}, Greedy(1000), /*tokens=*/98);
  EXPECT_THAT(verified.new_tokens, ElementsAre(7, 8));
  EXPECT_EQ(verified.finish, Finish::kLength);
}

TEST(VerifyTest, AStopTokenAtTheLimitCountsAsStop) {
  EXPECT_EQ(Verify({kEos}, {}, Greedy(1), /*tokens=*/10).finish, Finish::kStop);
}

TEST(VerifyTest, MinTokensHoldsWithinOneStep) {
  SamplingParams params = Greedy();
  params.min_tokens = 3;
  std::vector<float> logits(kVocab, 0.0f);
  logits[kEos] = 5.0f;
  logits[7] = 4.0f;
  Sampler sampler;
  // One token is generated already; the end may come as the fourth.
  std::vector<int32_t> sampled;
  for (int64_t position = 11; position < 14; ++position) {
    sampled.push_back(sampler.Sample(logits, params, kLimits.SamplingAt(position, params).point));
  }
  EXPECT_THAT(sampled, ElementsAre(7, 7, kEos));
  EXPECT_EQ(Verify(sampled, {7, 7}, params).finish, Finish::kStop);
}

TEST(VerifyTest, APromptWithoutGeneratedTokensIsNotFinished) {
  EXPECT_EQ(FinishAfter(kEos, 10, Greedy(), kLimits), Finish::kNo);
  EXPECT_EQ(FinishAfter(kEos, 11, Greedy(), kLimits), Finish::kStop);
  EXPECT_EQ(FinishAfter(5, 11, Greedy(1), kLimits), Finish::kLength);
}

}  // namespace
}  // namespace baton::engine
