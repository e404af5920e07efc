#include "common/rpc/convert.h"

#include <algorithm>
#include <chrono>

namespace baton::rpc {

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
  proto.set_seed(params.seed);
  proto.set_max_tokens(params.max_tokens);
  proto.set_min_tokens(params.min_tokens);
  proto.mutable_stop_token_ids()->Add(params.stop_token_ids.begin(), params.stop_token_ids.end());
  proto.set_ignore_eos(params.ignore_eos);
  return proto;
}

SamplingParams SamplingFromProto(const v1::SamplingParams& proto) {
  SamplingParams params;
  if (proto.has_temperature()) params.temperature = proto.temperature();
  if (proto.has_top_p()) params.top_p = proto.top_p();
  if (proto.has_top_k()) params.top_k = proto.top_k();
  if (proto.has_min_p()) params.min_p = proto.min_p();
  if (proto.has_seed()) params.seed = proto.seed();
  if (proto.has_max_tokens()) params.max_tokens = proto.max_tokens();
  params.min_tokens = proto.min_tokens();
  params.stop_token_ids.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  params.ignore_eos = proto.ignore_eos();
  return params;
}

Clock::Duration FromMicroseconds(uint64_t microseconds) {
  constexpr std::chrono::microseconds kYear = std::chrono::hours(24 * 365);
  return std::chrono::microseconds(std::min(microseconds, static_cast<uint64_t>(kYear.count())));
}

}  // namespace baton::rpc
