#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

// Penalties and biases on a GPU, through steps and their graphs.

namespace baton::engine {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;

std::unique_ptr<Engine> MakeCudaEngine(int draft_tokens) {
  EngineOptions options = TestOptions();
  options.device = "cuda";
  options.cache.page_tokens = 256;
  options.forward.deterministic = true;
  options.draft_tokens = draft_tokens;
  return MakeEngine(options);
}

TEST(CudaAdjustmentsTest, BiasesBanAndForceTokens) {
  const std::unique_ptr<Engine> engine = MakeCudaEngine(2);
  SamplingParams params = Greedy(20);
  const int32_t first = Generate(*engine, TestPrompt(60), params).tokens.front();
  params.logit_bias = {{.token = first, .bias = -100}};
  EXPECT_THAT(Generate(*engine, TestPrompt(60), params).tokens, Not(Contains(first)));
  params.logit_bias = {{.token = 77, .bias = 100}};
  EXPECT_THAT(Generate(*engine, TestPrompt(60), params).tokens, Each(77));
}

TEST(CudaAdjustmentsTest, DraftsChangeNoToken) {
  const std::unique_ptr<Engine> drafting = MakeCudaEngine(2);
  const std::unique_ptr<Engine> plain = MakeCudaEngine(0);
  int accepted = 0;
  for (SamplingParams params :
       {Greedy(60), SamplingParams{.seed = 4, .max_tokens = 60, .ignore_eos = true}}) {
    const Generated unadjusted = Generate(*plain, TestPrompt(60), params);
    params.presence_penalty = 0.3f;
    params.frequency_penalty = 0.3f;
    params.repetition_penalty = 1.1f;
    params.logit_bias = {{.token = 100, .bias = 3}, {.token = 101, .bias = -3}};
    params.top_logprobs = 2;
    const Generated expected = Generate(*plain, TestPrompt(60), params);
    const Generated drafted = Generate(*drafting, TestPrompt(60), params);
    EXPECT_EQ(drafted.tokens, expected.tokens);
    EXPECT_NE(expected.tokens, unadjusted.tokens);
    accepted += drafted.accepted;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace baton::engine
