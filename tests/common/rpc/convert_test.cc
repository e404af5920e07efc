#include "common/rpc/convert.h"

#include <cstdint>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::rpc {
namespace {

using ::testing::FieldsAre;
using ::testing::UnorderedElementsAre;

TEST(ConvertTest, UnsetSamplingFieldsTakeTheDefaultsThatUsersExpect) {
  const SamplingParams params = SamplingFromProto(v1::SamplingParams());
  EXPECT_EQ(params.temperature, 1.0f);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.repetition_penalty, 1.0f);
  EXPECT_EQ(params.max_tokens, SamplingParams().max_tokens);
}

TEST(ConvertTest, DurationsTravelInWholeMicroseconds) {
  EXPECT_EQ(ToMicroseconds(std::chrono::nanoseconds(7'999)), 7u);
  EXPECT_EQ(FromMicroseconds(ToMicroseconds(std::chrono::hours(1))), std::chrono::hours(1));
}

TEST(ConvertTest, DurationsThatAPeerMakesUpDoNotOverflow) {
  EXPECT_EQ(FromMicroseconds(0), Clock::Duration(0));
  EXPECT_EQ(FromMicroseconds(7), std::chrono::microseconds(7));
  const Clock::Duration longest = FromMicroseconds(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(longest, std::chrono::hours(24 * 365));
  EXPECT_GT(longest + longest, longest);
}

TEST(ConvertTest, NumbersAboveEveryLimitStayAboveIt) {
  v1::SamplingParams proto;
  EXPECT_EQ(SamplingFromProto(proto).top_logprobs, std::nullopt);
  proto.set_top_logprobs(0xffffffff);
  EXPECT_EQ(SamplingFromProto(proto).top_logprobs, std::numeric_limits<int32_t>::max());
}

TEST(ConvertTest, ZeroIsAValueOfItsOwn) {
  v1::SamplingParams proto;
  proto.set_temperature(0);
  EXPECT_EQ(SamplingFromProto(proto).temperature, 0.0f);
}

TEST(ConvertTest, EveryFieldSurvivesTheWire) {
  const SamplingParams params = {.temperature = 0.5f,
                                 .top_p = 0.25f,
                                 .top_k = 7,
                                 .min_p = 0.125f,
                                 .presence_penalty = -0.5f,
                                 .frequency_penalty = 1.5f,
                                 .repetition_penalty = 1.25f,
                                 .logit_bias = {{.token = 0, .bias = -100}, {.token = 9}},
                                 .seed = 0xfedcba9876543210,
                                 .max_tokens = 99,
                                 .min_tokens = 3,
                                 .stop_token_ids = {1, 5},
                                 .ignore_eos = true,
                                 .top_logprobs = 0};
  const SamplingParams back = SamplingFromProto(SamplingToProto(params));
  EXPECT_EQ(back.temperature, params.temperature);
  EXPECT_EQ(back.top_p, params.top_p);
  EXPECT_EQ(back.top_k, params.top_k);
  EXPECT_EQ(back.min_p, params.min_p);
  EXPECT_EQ(back.presence_penalty, params.presence_penalty);
  EXPECT_EQ(back.frequency_penalty, params.frequency_penalty);
  EXPECT_EQ(back.repetition_penalty, params.repetition_penalty);
  EXPECT_THAT(back.logit_bias, UnorderedElementsAre(FieldsAre(0, -100), FieldsAre(9, 0)));
  EXPECT_EQ(back.seed, params.seed);
  EXPECT_EQ(back.max_tokens, params.max_tokens);
  EXPECT_EQ(back.min_tokens, params.min_tokens);
  EXPECT_EQ(back.stop_token_ids, params.stop_token_ids);
  EXPECT_EQ(back.ignore_eos, params.ignore_eos);
  EXPECT_EQ(back.top_logprobs, params.top_logprobs);
  const TokenLogprobs logprobs = {
      .chosen = {.token = 3, .logprob = -0.25f},
      .top = {{.token = 5, .logprob = -0.125f}, {.token = 3, .logprob = -0.25f}}};
  EXPECT_EQ(LogprobsFromProto(LogprobsToProto(logprobs)), logprobs);

  const AttemptId attempt = {.request = {.high = 1ull << 63, .low = 2}, .attempt = 3};
  EXPECT_EQ(AttemptFromProto(AttemptToProto(attempt)), attempt);
}

}  // namespace
}  // namespace baton::rpc
