#include "engine/sampler/sequence_adjustments.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::engine {

bool SequenceAdjustments::Wanted(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 ||
         params.repetition_penalty != 1 || !params.logit_bias.empty();
}

SequenceAdjustments::SequenceAdjustments(const SamplingParams& params, int64_t first_generated)
    : presence_(params.presence_penalty),
      frequency_(params.frequency_penalty),
      repetition_(params.repetition_penalty),
      first_generated_(first_generated) {
  BATON_CHECK(first_generated >= 0) << first_generated;
  for (const LogitBias& bias : params.logit_bias) Find(bias.token).bias = bias.bias;
}

SequenceAdjustments::Token& SequenceAdjustments::Find(int32_t id) {
  const auto [place, is_new] = places_.try_emplace(id, tokens_.size());
  if (is_new) tokens_.push_back({.id = id});
  return tokens_[place->second];
}

// Tokens that no penalty looks at are not worth a place.
void SequenceAdjustments::Follow(std::span<const int32_t> tokens) {
  const auto end = static_cast<int64_t>(tokens.size());
  if (repetition_ == 1) followed_ = std::max(followed_, std::min(first_generated_, end));
  if (repetition_ == 1 && presence_ == 0 && frequency_ == 0) followed_ = end;
  for (; followed_ < end; ++followed_) {
    Token& token = Find(tokens[static_cast<size_t>(followed_)]);
    if (followed_ < first_generated_) {
      token.in_prompt = true;
    } else {
      ++token.count;
    }
  }
}

kernels::LogitAdjustment SequenceAdjustments::AdjustmentOf(const Token& token) const {
  const double presence = token.count > 0 ? presence_ : 0;
  const double frequency = static_cast<double>(frequency_) * token.count;
  return {.token = token.id,
          .repetition = token.in_prompt || token.count > 0 ? repetition_ : 1,
          .add = static_cast<float>(token.bias - presence - frequency)};
}

std::vector<kernels::LogitAdjustment> SequenceAdjustments::After(std::span<const int32_t> drafts) {
  for (const int32_t draft : drafts) ++Find(draft).count;
  std::vector<kernels::LogitAdjustment> adjustments;
  adjustments.reserve(tokens_.size());
  for (const Token& token : tokens_) {
    const kernels::LogitAdjustment adjustment = AdjustmentOf(token);
    if (adjustment.repetition != 1 || adjustment.add != 0) adjustments.push_back(adjustment);
  }
  for (const int32_t draft : drafts) --Find(draft).count;  // they may be rejected
  return adjustments;
}

}  // namespace baton::engine
