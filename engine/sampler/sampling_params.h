#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/sampling_params.h"

namespace baton::engine {

using baton::SamplingParams;

// INVALID_ARGUMENT naming the first field outside its range.
absl::Status ValidateSamplingParams(const SamplingParams& params);

// Whether the sequence ends with this token: the model's end of sequence or a stop id.
bool EndsSequence(int32_t token, const SamplingParams& params, int32_t eos_token_id);

}  // namespace baton::engine
