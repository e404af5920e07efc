#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler/sampler.h"
#include "engine/sampler/sampling_params.h"

namespace baton::engine {

// Speculative decoding as a pure function of what was sampled.

enum class Finish : uint8_t {
  kNo,
  kStop,    // its last token is the end of sequence or a stop id
  kLength,  // max_tokens or the context is exhausted
};

// Where a sequence ends, in tokens.
struct SequenceLimits {
  int64_t prompt_tokens = 0;
  int64_t max_context = 0;
  int32_t eos_token_id = 0;

  // Tokens the sequence may have at most, prompt included.
  int64_t MaxTokens(const SamplingParams& params) const;
  // How the token at `position` is chosen.
  RowSampling SamplingAt(int64_t position, const SamplingParams& params) const;
};

// Whether a sequence of `tokens` tokens, the last of them `last`, is finished. One that has no
// generated token is not.
Finish FinishAfter(int32_t last, int64_t tokens, const SamplingParams& params,
                   const SequenceLimits& limits);

struct VerifyInput {
  // drafts.size() + 1 tokens: the i-th is sampled after drafts[0, i), at position `tokens` + i.
  std::span<const int32_t> sampled;
  std::span<const int32_t> drafts;
  int64_t tokens = 0;  // of the sequence before this step, < MaxTokens
};

struct Verified {
  std::vector<int32_t> new_tokens;  // 1 to drafts.size() + 1
  int32_t accepted = 0;             // drafts among them
  Finish finish = Finish::kNo;
};

// A draft is accepted if and only if it is the token that is sampled in its place, so the tokens
// are those of decoding without drafts, greedy or not. Ends with the first token that finishes the
// sequence.
Verified VerifyDrafts(const VerifyInput& input, const SamplingParams& params,
                      const SequenceLimits& limits);

}  // namespace baton::engine
