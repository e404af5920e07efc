#include "common/rpc/convert.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace baton::rpc {
namespace {

v1::TokenLogprob ToProto(const TokenLogprob& entry) {
  v1::TokenLogprob proto;
  proto.set_token_id(entry.token);
  proto.set_logprob(entry.logprob);
  return proto;
}

TokenLogprob FromProto(const v1::TokenLogprob& entry) {
  return {.token = entry.token_id(), .logprob = entry.logprob()};
}

}  // namespace

v1::AttemptId AttemptToProto(const AttemptId& attempt) {
  v1::AttemptId proto;
  proto.mutable_request()->set_high(attempt.request.high);
  proto.mutable_request()->set_low(attempt.request.low);
  proto.set_attempt(attempt.attempt);
  return proto;
}

AttemptId AttemptFromProto(const v1::AttemptId& attempt) {
  return {.request = {.high = attempt.request().high(), .low = attempt.request().low()},
          .attempt = attempt.attempt()};
}

v1::SamplingParams SamplingToProto(const SamplingParams& params) {
  v1::SamplingParams proto;
  proto.set_temperature(params.temperature);
  proto.set_top_p(params.top_p);
  proto.set_top_k(params.top_k);
  proto.set_min_p(params.min_p);
  proto.set_presence_penalty(params.presence_penalty);
  proto.set_frequency_penalty(params.frequency_penalty);
  proto.set_repetition_penalty(params.repetition_penalty);
  for (const LogitBias& entry : params.logit_bias) {
    (*proto.mutable_logit_bias())[entry.token] = entry.bias;
  }
  proto.set_seed(params.seed);
  proto.set_max_tokens(params.max_tokens);
  proto.set_min_tokens(params.min_tokens);
  proto.mutable_stop_token_ids()->Add(params.stop_token_ids.begin(), params.stop_token_ids.end());
  proto.set_ignore_eos(params.ignore_eos);
  if (params.top_logprobs) proto.set_top_logprobs(static_cast<uint32_t>(*params.top_logprobs));
  return proto;
}

SamplingParams SamplingFromProto(const v1::SamplingParams& proto) {
  SamplingParams params;
  if (proto.has_temperature()) params.temperature = proto.temperature();
  if (proto.has_top_p()) params.top_p = proto.top_p();
  if (proto.has_top_k()) params.top_k = proto.top_k();
  if (proto.has_min_p()) params.min_p = proto.min_p();
  params.presence_penalty = proto.presence_penalty();
  params.frequency_penalty = proto.frequency_penalty();
  if (proto.has_repetition_penalty()) params.repetition_penalty = proto.repetition_penalty();
  params.logit_bias = LogitBiasFromProto(proto);
  if (proto.has_seed()) params.seed = proto.seed();
  if (proto.has_max_tokens()) params.max_tokens = proto.max_tokens();
  params.min_tokens = proto.min_tokens();
  params.stop_token_ids.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  params.ignore_eos = proto.ignore_eos();
  // Above all limits where it is above int32, never below them.
  if (proto.has_top_logprobs()) {
    params.top_logprobs = static_cast<int32_t>(
        std::min<uint32_t>(proto.top_logprobs(), std::numeric_limits<int32_t>::max()));
  }
  return params;
}

std::vector<LogitBias> LogitBiasFromProto(const v1::SamplingParams& proto) {
  std::vector<LogitBias> biases;
  for (const auto& [token, bias] : proto.logit_bias()) biases.push_back({token, bias});
  return biases;
}

v1::TokenLogprobs LogprobsToProto(const TokenLogprobs& logprobs) {
  v1::TokenLogprobs proto;
  *proto.mutable_chosen() = ToProto(logprobs.chosen);
  for (const TokenLogprob& entry : logprobs.top) *proto.add_top() = ToProto(entry);
  return proto;
}

TokenLogprobs LogprobsFromProto(const v1::TokenLogprobs& proto) {
  TokenLogprobs logprobs{.chosen = FromProto(proto.chosen()), .top = {}};
  for (const v1::TokenLogprob& entry : proto.top()) logprobs.top.push_back(FromProto(entry));
  return logprobs;
}

uint64_t ToMicroseconds(Clock::Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

Clock::Duration FromMicroseconds(uint64_t microseconds) {
  constexpr std::chrono::microseconds kYear = std::chrono::hours(24 * 365);
  return std::chrono::microseconds(std::min(microseconds, static_cast<uint64_t>(kYear.count())));
}

}  // namespace baton::rpc
