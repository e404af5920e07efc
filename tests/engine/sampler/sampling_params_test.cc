#include "engine/sampler/sampling_params.h"

#include <limits>
#include <string>
#include <vector>

#include "common/base/token_logprobs.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(SamplingParamsTest, AcceptsDefaultsAndTheEndsOfEveryRange) {
  EXPECT_THAT(ValidateSamplingParams({}), IsOk());
  EXPECT_THAT(ValidateSamplingParams({.temperature = 0, .top_p = 1e-30f, .min_p = 1}), IsOk());
  EXPECT_THAT(ValidateSamplingParams({.presence_penalty = 2, .frequency_penalty = -2}), IsOk());
  EXPECT_THAT(ValidateSamplingParams({.repetition_penalty = kMinRepetitionPenalty}), IsOk());
  EXPECT_THAT(ValidateSamplingParams({.repetition_penalty = kMaxRepetitionPenalty}), IsOk());
  EXPECT_THAT(ValidateSamplingParams({.logit_bias = {{.token = 5, .bias = -100}}}), IsOk());
  EXPECT_THAT(ValidateSamplingParams({.max_tokens = 5, .min_tokens = 5}), IsOk());
  EXPECT_THAT(ValidateSamplingParams({.stop_token_ids = std::vector<int32_t>(kMaxStopTokenIds, 7)}),
              IsOk());
  EXPECT_THAT(ValidateSamplingParams({.top_logprobs = kMaxTopLogprobs}), IsOk());
}

TEST(SamplingParamsTest, NamesTheFieldThatIsOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const struct {
    SamplingParams params;
    std::string field;
  } cases[] = {
      {{.temperature = -0.1f}, "temperature"},
      {{.temperature = nan}, "temperature"},
      {{.temperature = infinity}, "temperature"},
      {{.top_p = 0}, "top_p"},
      {{.top_p = 1.1f}, "top_p"},
      {{.top_p = nan}, "top_p"},
      {{.top_k = -1}, "top_k"},
      {{.top_logprobs = -1}, "top_logprobs"},
      {{.top_logprobs = kMaxTopLogprobs + 1}, "top_logprobs"},
      {{.min_p = -0.1f}, "min_p"},
      {{.min_p = 1.5f}, "min_p"},
      {{.min_p = nan}, "min_p"},
      {{.presence_penalty = 2.1f}, "presence_penalty"},
      {{.frequency_penalty = -2.1f}, "frequency_penalty"},
      {{.frequency_penalty = nan}, "frequency_penalty"},
      {{.repetition_penalty = 0}, "repetition_penalty"},
      {{.repetition_penalty = infinity}, "repetition_penalty"},
      {{.logit_bias = {{.token = 5, .bias = 100.5f}}}, "logit_bias of token 5"},
      {{.logit_bias = {{.token = 5, .bias = nan}}}, "logit_bias of token 5"},
      {{.logit_bias = std::vector<LogitBias>(kMaxLogitBiases + 1)}, "logit_bias"},
      {{.max_tokens = 0}, "max_tokens"},
      {{.max_tokens = 2, .min_tokens = 3}, "min_tokens"},
      {{.stop_token_ids = std::vector<int32_t>(kMaxStopTokenIds + 1, 7)}, "stop_token_ids"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ValidateSamplingParams(c.params),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.field + " is")));
  }
}

TEST(SamplingParamsTest, EndsAtEndOfSequenceUnlessIgnoredAndAtStopIds) {
  EXPECT_TRUE(EndsSequence(1, {}, 1));
  EXPECT_FALSE(EndsSequence(2, {}, 1));
  EXPECT_FALSE(EndsSequence(1, {.ignore_eos = true}, 1));
  EXPECT_TRUE(EndsSequence(5, {.stop_token_ids = {4, 5}}, 1));
  EXPECT_TRUE(EndsSequence(1, {.stop_token_ids = {1}, .ignore_eos = true}, 1));
}

}  // namespace
}  // namespace baton::engine
