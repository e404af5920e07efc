#include "engine/verify.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kEos = 1;
constexpr int kVocab = 16;
constexpr SequenceLimits kLimits = {.prompt_tokens = 10, .max_context = 100, .eos_token_id = kEos};

SamplingParams Greedy(uint32_t max_tokens = 50) {
  return {.temperature = 0, .max_tokens = max_tokens};
}

// Rows whose highest logits are at these ids.
std::vector<float> RowsPreferring(const std::vector<int32_t>& ids) {
  std::vector<float> logits(ids.size() * kVocab, 0.0f);
  for (size_t row = 0; row < ids.size(); ++row) {
    logits[row * kVocab + static_cast<size_t>(ids[row])] = 5.0f;
  }
  return logits;
}

Verified Verify(const std::vector<int32_t>& best, const std::vector<int32_t>& drafts,
                const SamplingParams& params, int64_t tokens = 11) {
  Sampler sampler;
  const std::vector<float> logits = RowsPreferring(best);
  return VerifyDrafts({.logits = logits, .drafts = drafts, .tokens = tokens}, params, kLimits,
                      sampler);
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
  Sampler sampler;
  // One token is generated already; the end may come as the fourth.
  std::vector<float> logits(3 * kVocab, 0.0f);
  for (size_t row = 0; row < 3; ++row) {
    logits[row * kVocab + kEos] = 5.0f;
    logits[row * kVocab + 7] = 4.0f;
  }
  const std::vector<int32_t> drafts = {7, 7};
  const Verified verified =
      VerifyDrafts({.logits = logits, .drafts = drafts, .tokens = 11}, params, kLimits, sampler);
  EXPECT_THAT(verified.new_tokens, ElementsAre(7, 7, kEos));
  EXPECT_EQ(verified.finish, Finish::kStop);
}

TEST(VerifyTest, SampledTokensAreThoseOfDecodingWithoutDrafts) {
  const std::vector<float> flat(3 * kVocab, 0.0f);
  SamplingParams params{.seed = 99, .max_tokens = 50, .ignore_eos = true};
  Sampler sampler;
  for (int64_t tokens = 11; tokens < 50; ++tokens) {
    std::vector<int32_t> expected;
    for (int64_t i = 0; i < 3; ++i) {
      expected.push_back(
          VerifyDrafts(
              {.logits = std::span(flat).first(kVocab), .drafts = {}, .tokens = tokens + i}, params,
              kLimits, sampler)
              .new_tokens[0]);
    }
    const std::vector<int32_t> drafts(expected.begin(), expected.begin() + 2);
    const Verified verified = VerifyDrafts({.logits = flat, .drafts = drafts, .tokens = tokens},
                                           params, kLimits, sampler);
    EXPECT_EQ(verified.new_tokens, expected);
  }
}

TEST(VerifyTest, APromptWithoutGeneratedTokensIsNotFinished) {
  EXPECT_EQ(FinishAfter(kEos, 10, Greedy(), kLimits), Finish::kNo);
  EXPECT_EQ(FinishAfter(kEos, 11, Greedy(), kLimits), Finish::kStop);
  EXPECT_EQ(FinishAfter(5, 11, Greedy(1), kLimits), Finish::kLength);
}

}  // namespace
}  // namespace baton::engine
