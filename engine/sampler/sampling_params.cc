#include "engine/sampler/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/token_logprobs.h"

namespace baton::engine {

absl::Status ValidateSamplingParams(const SamplingParams& params) {
  const auto refuse = [](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  // Written so that NaN fails each of them.
  if (!(params.temperature >= 0 && std::isfinite(params.temperature))) {
    return refuse("temperature is ", params.temperature, ", must be finite and >= 0");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return refuse("top_p is ", params.top_p, ", must be in (0, 1]");
  }
  if (params.top_k < 0) return refuse("top_k is ", params.top_k, ", must be >= 0 (0 = off)");
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return refuse("min_p is ", params.min_p, ", must be in [0, 1]");
  }
  for (const auto& [field, value] : {std::pair("presence_penalty", params.presence_penalty),
                                     std::pair("frequency_penalty", params.frequency_penalty)}) {
    if (!(value >= -kMaxPenalty && value <= kMaxPenalty)) {
      return refuse(field, " is ", value, ", must be in [", -kMaxPenalty, ", ", kMaxPenalty, "]");
    }
  }
  if (!(params.repetition_penalty >= kMinRepetitionPenalty &&
        params.repetition_penalty <= kMaxRepetitionPenalty)) {
    return refuse("repetition_penalty is ", params.repetition_penalty, ", must be in [",
                  kMinRepetitionPenalty, ", ", kMaxRepetitionPenalty, "]");
  }
  if (params.logit_bias.size() > kMaxLogitBiases) {
    return refuse("logit_bias is a list of ", params.logit_bias.size(), ", at most ",
                  kMaxLogitBiases, " are allowed");
  }
  for (const LogitBias& entry : params.logit_bias) {
    if (!(entry.bias >= -kMaxLogitBias && entry.bias <= kMaxLogitBias)) {
      return refuse("logit_bias of token ", entry.token, " is ", entry.bias, ", must be in [",
                    -kMaxLogitBias, ", ", kMaxLogitBias, "]");
    }
  }
  if (params.max_tokens < 1) return refuse("max_tokens is 0, must be at least 1");
  if (params.min_tokens > params.max_tokens) {
    return refuse("min_tokens is ", params.min_tokens, ", must be at most max_tokens, which is ",
                  params.max_tokens);
  }
  if (params.stop_token_ids.size() > kMaxStopTokenIds) {
    return refuse("stop_token_ids is a list of ", params.stop_token_ids.size(), ", at most ",
                  kMaxStopTokenIds, " are allowed");
  }
  const int32_t top = params.top_logprobs.value_or(0);
  if (top < 0 || top > kMaxTopLogprobs) {
    return refuse("top_logprobs is ", top, ", must be in [0, ", kMaxTopLogprobs, "]");
  }
  return absl::OkStatus();
}

bool EndsSequence(int32_t token, const SamplingParams& params, int32_t eos_token_id) {
  if (token == eos_token_id && !params.ignore_eos) return true;
  return std::find(params.stop_token_ids.begin(), params.stop_token_ids.end(), token) !=
         params.stop_token_ids.end();
}

}  // namespace baton::engine
