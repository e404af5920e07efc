#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampler/sampling_params.h"
#include "kernels/logit_adjustments.h"

namespace baton::engine {

// Which token of the sequence is chosen.
struct SamplePoint {
  int64_t position = 0;    // index the token will have in the sequence, prompt included
  uint32_t generated = 0;  // tokens generated before it, for min_tokens
  int32_t eos_token_id = 0;
};

// How a row of logits becomes a token.
struct RowSampling {
  const SamplingParams* params = nullptr;  // outlives what it is given to
  SamplePoint point;
  // Beside the token: its log-probabilities and those of so many others.
  std::optional<int32_t> top_logprobs = {};
  // Of its logits before they are sampled from, all of row 0; outlives what it is given to.
  // Log-probabilities are of the logits without them.
  std::span<const kernels::LogitAdjustment> adjustments = {};
};

// Chooses tokens from rows of logits. The choice is a function of its arguments alone; the object
// holds scratch memory only, so one per thread.
//
// Order of the filters, as in Hugging Face transformers: adjustments, temperature, top_k, top_p
// over what top_k left, min_p. Of equal logits the lower id counts as the better one. The token is
// then found by the uniform number of (seed, position) in the distribution function over ascending
// ids.
class Sampler {
 public:
  // `logits` has one value per token id. NaN or +infinity in it, or no finite value at all, is a
  // broken invariant of the forward pass (fatal). If every token would end the sequence before
  // min_tokens, min_tokens yields.
  int32_t Sample(std::span<const float> logits, const SamplingParams& params,
                 const SamplePoint& point) {
    return Sample(logits, {.params = &params, .point = point});
  }
  int32_t Sample(std::span<const float> logits, const RowSampling& how);

 private:
  struct Candidate {
    float logit = 0;
    int32_t id = 0;
    double weight = 0;  // probability up to a common factor; 1 for the best
  };
  static bool Better(const Candidate& a, const Candidate& b);

  // Every token that has a probability; without those that would end the sequence if it may not.
  void Collect(std::span<const float> logits, const SamplingParams& params, int32_t eos_token_id,
               bool may_end);
  int32_t Draw(const SamplingParams& params, int64_t position);
  void KeepTopP(float top_p);

  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
  std::vector<int32_t> masked_;  // ascending
};

}  // namespace baton::engine
