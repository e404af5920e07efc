#include "engine/sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "engine/sampler/philox.h"

namespace baton::engine {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void CheckLogits(std::span<const float> logits) {
  bool valid = true;
  bool any = false;
  for (const float logit : logits) {
    valid &= logit <= std::numeric_limits<float>::max();  // false for NaN and +infinity
    any |= logit > kMasked;
  }
  BATON_CHECK(valid && any) << "a row of " << logits.size() << " logits "
                            << (valid ? "has no finite value" : "holds NaN or +infinity");
}

}  // namespace

bool Sampler::Better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

int32_t Sampler::Sample(std::span<const float> logits, const RowSampling& how) {
  if (!how.adjustments.empty()) {
    adjusted_.assign(logits.begin(), logits.end());
    kernels::AdjustLogits(how.adjustments, {adjusted_.data(), 1, std::ssize(adjusted_)});
    logits = adjusted_;
  }
  CheckLogits(logits);
  const SamplingParams& params = *how.params;
  const SamplePoint& point = how.point;
  const bool may_end = point.generated >= params.min_tokens;
  if (may_end && params.temperature == 0) {  // the hot path copies nothing
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  Collect(logits, params, point.eos_token_id, may_end);
  if (candidates_.empty()) Collect(logits, params, point.eos_token_id, /*may_end=*/true);
  if (params.temperature == 0) {
    return std::min_element(candidates_.begin(), candidates_.end(), Better)->id;
  }
  return Draw(params, point.position);
}

// One pass over both lists: looking every id of the vocabulary up in the stop ids would make one
// request cost a step of everybody.
void Sampler::Collect(std::span<const float> logits, const SamplingParams& params,
                      int32_t eos_token_id, bool may_end) {
  masked_.clear();
  if (!may_end) {
    masked_ = params.stop_token_ids;
    if (!params.ignore_eos) masked_.push_back(eos_token_id);
    std::sort(masked_.begin(), masked_.end());
  }
  candidates_.clear();
  auto next_masked = masked_.begin();
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    while (next_masked != masked_.end() && *next_masked < id) ++next_masked;
    if (next_masked != masked_.end() && *next_masked == id) continue;
    if (logits[i] != kMasked) candidates_.push_back({.logit = logits[i], .id = id});
  }
}

// Sorts only as far as the mass reaches: with a vocabulary of 129,280 a full sort for every token
// would cost more than the LM head.
void Sampler::KeepTopP(float top_p) {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double wanted = static_cast<double>(top_p) * total;
  double mass = 0;
  size_t sorted = 0;
  for (size_t block = 64; sorted < candidates_.size(); block *= 4) {
    const size_t end = std::min(candidates_.size(), sorted + block);
    const auto first = candidates_.begin() + static_cast<int64_t>(sorted);
    const auto last = candidates_.begin() + static_cast<int64_t>(end);
    if (last != candidates_.end()) std::nth_element(first, last, candidates_.end(), Better);
    std::sort(first, last, Better);
    for (; sorted < end; ++sorted) {
      mass += candidates_[sorted].weight;
      if (mass >= wanted) {  // the token that crosses the bound is kept
        candidates_.resize(sorted + 1);
        return;
      }
    }
  }
}

int32_t Sampler::Draw(const SamplingParams& params, int64_t position) {
  const auto top_k = static_cast<size_t>(params.top_k);
  bool reordered = false;
  if (top_k > 0 && top_k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(),
                     Better);
    candidates_.resize(top_k);
    reordered = true;
  }
  const float best = std::min_element(candidates_.begin(), candidates_.end(), Better)->logit;
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((static_cast<double>(candidate.logit) - best) / params.temperature);
  }
  if (params.top_p < 1) {
    KeepTopP(params.top_p);
    reordered = true;
  }
  if (params.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params.min_p; });
  }
  if (reordered) {
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  }
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double target = UniformAt(params.seed, static_cast<uint64_t>(position)) * total;
  double mass = 0;
  for (const Candidate& candidate : candidates_) {
    mass += candidate.weight;
    if (mass > target) return candidate.id;
  }
  // The same sum in the same order exceeds every target below it.
  BATON_CHECK(false) << "weights sum to " << total << ", target " << target;
  return -1;
}

}  // namespace baton::engine
