#include "engine/verify.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::engine {

int64_t SequenceLimits::MaxTokens(const SamplingParams& params) const {
  return std::min(prompt_tokens + int64_t{params.max_tokens}, max_context);
}

Finish FinishAfter(int32_t last, int64_t tokens, const SamplingParams& params,
                   const SequenceLimits& limits) {
  if (tokens <= limits.prompt_tokens) return Finish::kNo;
  if (EndsSequence(last, params, limits.eos_token_id)) return Finish::kStop;
  return tokens >= limits.MaxTokens(params) ? Finish::kLength : Finish::kNo;
}

Verified VerifyDrafts(const VerifyInput& input, const SamplingParams& params,
                      const SequenceLimits& limits, Sampler& sampler) {
  const size_t rows = input.drafts.size() + 1;
  const size_t vocab = input.logits.size() / rows;
  BATON_CHECK(vocab > 0 && vocab * rows == input.logits.size())
      << input.logits.size() << " logits, " << rows << " rows";
  Verified result;
  for (size_t row = 0; row < rows; ++row) {
    const int64_t position = input.tokens + static_cast<int64_t>(row);
    const SamplePoint point{
        .position = position,
        .generated = static_cast<uint32_t>(position - limits.prompt_tokens),
        .eos_token_id = limits.eos_token_id,
    };
    const int32_t token = sampler.Sample(input.logits.subspan(row * vocab, vocab), params, point);
    result.new_tokens.push_back(token);
    const bool accepted = row < input.drafts.size() && token == input.drafts[row];
    result.accepted += accepted ? 1 : 0;
    result.finish = FinishAfter(token, position + 1, params, limits);
    if (!accepted || result.finish != Finish::kNo) break;
  }
  return result;
}

}  // namespace baton::engine
