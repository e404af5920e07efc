#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

// Penalties and biases, through steps.

namespace baton::engine {
namespace {

using ::baton::testing::StatusIs;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kPromptTokens = 60;

std::vector<int32_t> TokensOf(Engine& engine, const SamplingParams& sampling, int64_t chunk = 512) {
  return Generate(engine, TestPrompt(kPromptTokens), sampling, chunk).tokens;
}

size_t Distinct(const std::vector<int32_t>& tokens) {
  return std::set<int32_t>(tokens.begin(), tokens.end()).size();
}

class AdjustmentsTest : public DraftingAndPlainEngines {};

TEST_F(AdjustmentsTest, ABiasOfMinusHundredBansATokenAndOneOfHundredForcesIt) {
  SamplingParams params = Greedy(20);
  const int32_t first = TokensOf(*drafting_, params).front();
  params.logit_bias = {{.token = first, .bias = -100}};
  EXPECT_THAT(TokensOf(*drafting_, params), Not(Contains(first)));
  params.logit_bias = {{.token = 77, .bias = 100}};
  EXPECT_THAT(TokensOf(*drafting_, params), Each(77));
  EXPECT_THAT(TokensOf(*plain_, params), Each(77));
}

TEST_F(AdjustmentsTest, PenaltiesMakeRepeatsRarer) {
  SamplingParams params = Greedy(60);
  const size_t distinct = Distinct(TokensOf(*drafting_, params));
  for (auto field : {&SamplingParams::presence_penalty, &SamplingParams::frequency_penalty,
                     &SamplingParams::repetition_penalty}) {
    SamplingParams penalised = params;
    penalised.*field = 2;
    EXPECT_GT(Distinct(TokensOf(*drafting_, penalised)), 2 * distinct);
  }
}

// What the penalties are to be, computed here: biases on single tokens after ever longer prompts.
TEST_F(AdjustmentsTest, PenaltiesAreThoseOfTheTokensGeneratedSoFar) {
  SamplingParams params = Greedy(30);
  params.presence_penalty = 0.25f;
  params.frequency_penalty = 0.5f;
  std::vector<int32_t> tokens = TestPrompt(kPromptTokens);
  std::map<int32_t, int> counts;
  for (uint32_t i = 0; i < params.max_tokens; ++i) {
    SamplingParams one = Greedy(1);
    for (const auto& [token, count] : counts) {
      const auto penalty = static_cast<float>(0.25 + 0.5 * count);
      one.logit_bias.push_back({.token = token, .bias = -penalty});
    }
    tokens.push_back(Generate(*plain_, tokens, one).tokens.at(0));
    ++counts[tokens.back()];
  }
  EXPECT_EQ(TokensOf(*drafting_, params),
            std::vector<int32_t>(tokens.begin() + kPromptTokens, tokens.end()));
  EXPECT_LT(counts.size(), params.max_tokens) << "no token came twice: nothing was counted";
}

std::vector<SamplingParams> Mixture() {
  const SamplingParams sampled{.seed = 4, .max_tokens = 40, .ignore_eos = true};
  std::vector<SamplingParams> all;
  for (SamplingParams params : {Greedy(40), sampled}) {
    params.presence_penalty = 0.5f;
    params.frequency_penalty = 0.3f;
    all.push_back(params);
    params.repetition_penalty = 1.2f;
    params.logit_bias = {{.token = 100, .bias = 4}, {.token = 101, .bias = -4}};
    all.push_back(params);
    params.presence_penalty = params.frequency_penalty = -0.4f;
    all.push_back(params);
  }
  return all;
}

TEST_F(AdjustmentsTest, DraftsAndChunksChangeNoToken) {
  int accepted = 0;
  for (const SamplingParams& params : Mixture()) {
    const Generated drafted = Generate(*drafting_, TestPrompt(kPromptTokens), params);
    const std::vector<int32_t> expected = TokensOf(*plain_, params);
    EXPECT_EQ(drafted.tokens, expected);
    EXPECT_EQ(TokensOf(*drafting_, params, /*chunk=*/17), expected);
    accepted += drafted.accepted;
  }
  EXPECT_GT(accepted, 0);
}

TEST_F(AdjustmentsTest, LogprobsAreOfTheModelWithoutThem) {
  SamplingParams params = Greedy(1);
  params.top_logprobs = 3;
  const auto first = [&] {
    const auto sequence = MakeSequence(*drafting_, TestPrompt(kPromptTokens), params);
    const StepItem item{sequence.get(), kPromptTokens};
    return drafting_->Step({&item, 1}).at(0).logprobs.at(0);
  };
  const TokenLogprobs before = first();
  params.logit_bias = {{.token = before.chosen.token, .bias = -100}};
  const TokenLogprobs banned = first();
  EXPECT_EQ(banned.top, before.top);
  EXPECT_EQ(banned.chosen, before.top.at(1));
}

// Beside others, and each for itself: alone every one has the same tokens.
TEST_F(AdjustmentsTest, SequencesOfABatchDoNotSeeEachOthers) {
  const std::vector<SamplingParams> mixture = Mixture();
  const std::vector<SamplingParams> all = {mixture[1], Greedy(40), mixture[3]};
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (const SamplingParams& params : all) {
    sequences.push_back(MakeSequence(*drafting_, TestPrompt(kPromptTokens), params));
  }
  for (bool stepped = true; stepped;) {
    std::vector<StepItem> items;
    for (const auto& sequence : sequences) {
      if (drafting_->FinishOf(*sequence) == Finish::kNo) items.push_back(NextItem(*sequence, 64));
    }
    stepped = !drafting_->Step(items).empty();
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<int32_t>& tokens = sequences[i]->tokens();
    EXPECT_EQ(std::vector<int32_t>(tokens.begin() + kPromptTokens, tokens.end()),
              TokensOf(*plain_, all[i]));
  }
}

TEST_F(AdjustmentsTest, APreemptedSequenceGoesOnWithWhatItHasCounted) {
  for (const SamplingParams& params : Mixture()) {
    const std::vector<int32_t> expected = TokensOf(*drafting_, params);
    std::vector<int32_t> known = TestPrompt(kPromptTokens);
    known.insert(known.end(), expected.begin(), expected.begin() + 25);
    SamplingParams rest = params;
    rest.max_tokens -= 25;
    rest.resumed_tokens = 25;
    EXPECT_EQ(Generate(*drafting_, known, rest).tokens,
              std::vector<int32_t>(expected.begin() + 25, expected.end()));
  }
}

TEST_F(AdjustmentsTest, ABiasOutsideTheVocabularyIsRefused) {
  for (const int32_t token : {-1, 1024}) {
    SamplingParams params = Greedy(1);
    params.logit_bias = {{.token = token, .bias = 1}};
    EXPECT_THAT(
        drafting_->NewSequence({5}, params, 2).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token " + std::to_string(token))));
  }
}

}  // namespace
}  // namespace baton::engine
