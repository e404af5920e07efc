#include "engine/verify.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::engine {

int64_t SequenceLimits::MaxTokens(const SamplingParams& params) const {
  return std::min(prompt_tokens + int64_t{params.max_tokens}, max_context);
}

RowSampling SequenceLimits::SamplingAt(int64_t position, const SamplingParams& params) const {
  return {.params = &params,
          .point = {.position = position,
                    .generated = static_cast<uint32_t>(position - prompt_tokens),
                    .eos_token_id = eos_token_id}};
}

Finish FinishAfter(int32_t last, int64_t tokens, const SamplingParams& params,
                   const SequenceLimits& limits) {
  if (tokens <= limits.prompt_tokens) return Finish::kNo;
  if (EndsSequence(last, params, limits.eos_token_id)) return Finish::kStop;
  return tokens >= limits.MaxTokens(params) ? Finish::kLength : Finish::kNo;
}

Verified VerifyDrafts(const VerifyInput& input, const SamplingParams& params,
                      const SequenceLimits& limits) {
  BATON_CHECK(input.sampled.size() == input.drafts.size() + 1)
      << input.sampled.size() << " tokens for " << input.drafts.size() << " drafts";
  Verified result;
  for (size_t row = 0; row < input.sampled.size(); ++row) {
    const int32_t token = input.sampled[row];
    result.new_tokens.push_back(token);
    const bool accepted = row < input.drafts.size() && token == input.drafts[row];
    result.accepted += accepted ? 1 : 0;
    result.finish =
        FinishAfter(token, input.tokens + static_cast<int64_t>(row) + 1, params, limits);
    if (!accepted || result.finish != Finish::kNo) break;
  }
  return result;
}

}  // namespace baton::engine
