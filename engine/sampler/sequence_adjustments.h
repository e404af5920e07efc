#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/sampler/sampling_params.h"
#include "kernels/logit_adjustments.h"

namespace baton::engine {

// What penalties and biases make of the logits of one sequence. For a token that has been generated
// `count` times, by kernels/logit_adjustments.h:
//
//   repetition = repetition_penalty if it stands in the prompt or count > 0, else 1
//   add        = bias - (count > 0 ? presence_penalty : 0) - frequency_penalty * count
//
// in double precision, rounded to FP32: a function of the counts, in whatever order tokens came.
// The repetition penalty is that of Hugging Face transformers, the rest OpenAI's.
class SequenceAdjustments {
 public:
  // Whether the parameters adjust anything.
  static bool Wanted(const SamplingParams& params);

  // Tokens from `first_generated` on count as generated.
  SequenceAdjustments(const SamplingParams& params, int64_t first_generated);

  // Takes in those of the sequence's tokens that have come since the last call.
  void Follow(std::span<const int32_t> tokens);
  // For the token that comes after all of those and `drafts`: one adjustment for each token that
  // has any, of row 0.
  std::vector<kernels::LogitAdjustment> After(std::span<const int32_t> drafts);

 private:
  struct Token {
    int32_t id = 0;
    bool in_prompt = false;
    uint32_t count = 0;
    float bias = 0;
  };

  Token& Find(int32_t id);
  kernels::LogitAdjustment AdjustmentOf(const Token& token) const;

  const float presence_;
  const float frequency_;
  const float repetition_;
  const int64_t first_generated_;
  int64_t followed_ = 0;       // tokens of the sequence
  std::vector<Token> tokens_;  // biased, or penalised if they count
  absl::flat_hash_map<int32_t, size_t> places_;
};

}  // namespace baton::engine
