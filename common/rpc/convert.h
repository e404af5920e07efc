#pragma once

#include <cstdint>
#include <vector>

#include "baton/v1/common.pb.h"
#include "common/base/token_logprobs.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/sampling_params.h"

// Wire messages <-> plain structs, for all roles. Unset optional fields take the defaults of the
// struct; ranges are checked by those who use the values.

namespace baton::rpc {

v1::AttemptId AttemptToProto(const AttemptId& attempt);
AttemptId AttemptFromProto(const v1::AttemptId& attempt);

v1::SamplingParams SamplingToProto(const SamplingParams& params);
SamplingParams SamplingFromProto(const v1::SamplingParams& params);
// In any order.
std::vector<LogitBias> LogitBiasFromProto(const v1::SamplingParams& params);

v1::TokenLogprobs LogprobsToProto(const TokenLogprobs& logprobs);
TokenLogprobs LogprobsFromProto(const v1::TokenLogprobs& logprobs);

// Of what is not negative.
uint64_t ToMicroseconds(Clock::Duration duration);
// A duration as a peer says it. Lest sums of them overflow, none is longer than a year.
Clock::Duration FromMicroseconds(uint64_t microseconds);

}  // namespace baton::rpc
