#include <algorithm>
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

// Log-probabilities of generated tokens, through steps.

namespace baton::engine {
namespace {

using ::testing::IsEmpty;

using Logprobs = std::vector<TokenLogprobs>;

SamplingParams Asking(int32_t top, SamplingParams params = Greedy(12)) {
  params.top_logprobs = top;
  return params;
}

Logprobs LogprobsOf(Engine& engine, std::vector<int32_t> prompt, const SamplingParams& sampling,
                    int64_t chunk = 512) {
  const std::unique_ptr<Sequence> sequence = MakeSequence(engine, std::move(prompt), sampling);
  Logprobs all;
  while (engine.FinishOf(*sequence) == Finish::kNo) {
    const StepItem item = NextItem(*sequence, chunk);
    const StepOutput output = engine.Step({&item, 1}).at(0);
    EXPECT_EQ(output.logprobs.size(), output.new_tokens.size());
    all.insert(all.end(), output.logprobs.begin(), output.logprobs.end());
  }
  EXPECT_EQ(std::ssize(all), std::ssize(sequence->tokens()) - sequence->prompt_tokens());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].chosen.token,
              sequence->tokens()[static_cast<size_t>(sequence->prompt_tokens()) + i]);
  }
  return all;
}

class LogprobsTest : public DraftingAndPlainEngines {};

TEST_F(LogprobsTest, TheGreedyTokenIsTheLikeliestAndProbabilitiesAreOnes) {
  for (const TokenLogprobs& place : LogprobsOf(*drafting_, TestPrompt(60), Asking(5))) {
    ASSERT_EQ(place.top.size(), 5u);
    EXPECT_EQ(place.top.front(), place.chosen);
    double sum = 0;
    for (const TokenLogprob& entry : place.top) {
      sum += std::exp(static_cast<double>(entry.logprob));
    }
    EXPECT_LE(sum, 1 + 1e-6);
    EXPECT_TRUE(std::is_sorted(place.top.begin(), place.top.end(),
                               [](const auto& a, const auto& b) { return a.logprob > b.logprob; }));
  }
}

TEST_F(LogprobsTest, DraftsAndChunksChangeNoBit) {
  const SamplingParams sampled{.seed = 4, .max_tokens = 30, .ignore_eos = true};
  for (const SamplingParams& params : {Asking(3, Greedy(30)), Asking(3, sampled)}) {
    const Logprobs expected = LogprobsOf(*plain_, TestPrompt(131), params);
    EXPECT_EQ(LogprobsOf(*drafting_, TestPrompt(131), params), expected);
    EXPECT_EQ(LogprobsOf(*drafting_, TestPrompt(131), params, /*chunk=*/50), expected);
  }
}

TEST_F(LogprobsTest, TheNumberAskedForChangesNeitherTokensNorValues) {
  const Logprobs many = LogprobsOf(*drafting_, TestPrompt(40), Asking(kMaxTopLogprobs));
  const Logprobs none = LogprobsOf(*drafting_, TestPrompt(40), Asking(0));
  ASSERT_EQ(many.size(), none.size());
  for (size_t i = 0; i < many.size(); ++i) {
    EXPECT_EQ(many[i].chosen, none[i].chosen);
    EXPECT_EQ(many[i].top.size(), static_cast<size_t>(kMaxTopLogprobs));
    EXPECT_THAT(none[i].top, IsEmpty());
  }
}

TEST_F(LogprobsTest, OnlyThoseOfABatchThatAskGetThem) {
  const Logprobs alone = LogprobsOf(*drafting_, TestPrompt(33), Asking(2));
  const auto silent = MakeSequence(*drafting_, TestPrompt(20), Greedy(20));
  const auto asking = MakeSequence(*drafting_, TestPrompt(33), Asking(2));
  const auto also = MakeSequence(*drafting_, TestPrompt(33), Asking(1));
  Logprobs together;
  while (drafting_->FinishOf(*asking) == Finish::kNo) {
    const std::vector<StepItem> items = {NextItem(*silent, 7), NextItem(*also, 33),
                                         NextItem(*asking, 33)};
    const std::vector<StepOutput> outputs = drafting_->Step(items);
    EXPECT_THAT(outputs[0].logprobs, IsEmpty());
    for (const TokenLogprobs& place : outputs[1].logprobs) EXPECT_EQ(place.top.size(), 1u);
    together.insert(together.end(), outputs[2].logprobs.begin(), outputs[2].logprobs.end());
  }
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace baton::engine
