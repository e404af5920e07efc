#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace baton {

// More stop ids than this are refused: they are looked up for every token, and travel with every
// attempt in a message that is bounded.
inline constexpr size_t kMaxStopTokenIds = 1024;
// As many as OpenAI's API allows.
inline constexpr size_t kMaxLogitBiases = 300;
inline constexpr float kMaxLogitBias = 100;  // and from its negative on, as penalties are
inline constexpr float kMaxPenalty = 2;
// Finite logits stay finite: those of a model are far below 1e36.
inline constexpr float kMinRepetitionPenalty = 0.01f;
inline constexpr float kMaxRepetitionPenalty = 100;

// What is added to a token's logit.
struct LogitBias {
  int32_t token = 0;
  float bias = 0;
};

// How the next token is chosen from a row of logits. Sampling is counter-based: the random number
// of position p depends on (seed, p) alone, so that a retried or handed-over sequence continues
// exactly as it would have.
struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy: the highest logit, ties to the lowest id
  float top_p = 1.0f;        // (0, 1]
  int32_t top_k = 0;         // 0 = off
  float min_p = 0.0f;        // [0, 1]: tokens below min_p x the best probability are dropped
  // Change the logits that all of the above works on, in an order and by a formula that
  // engine/sampler/sequence_adjustments.h gives. Penalties are for tokens that were generated, as
  // OpenAI's; that of repetition also for those of the prompt.
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]: for each time
  float repetition_penalty = 1.0f;  // [0.01, 100]: a factor
  // At most kMaxLogitBiases, each in [-100, 100], no token twice.
  std::vector<LogitBias> logit_bias = {};
  uint64_t seed = 0;
  uint32_t max_tokens = 1;  // generated tokens, >= 1
  uint32_t min_tokens = 0;  // tokens that would end the sequence cannot be chosen before
  // At most kMaxStopTokenIds; ids outside the vocabulary have no effect.
  std::vector<int32_t> stop_token_ids = {};
  bool ignore_eos = false;
  // So many tokens at the prompt's end count as generated: of a sequence that goes on as a new one.
  uint32_t resumed_tokens = 0;
  // Log-probabilities of each generated token and of so many of the likeliest in its place, 0 to
  // kMaxTopLogprobs (common/base/token_logprobs.h). Unset: none. They change no token.
  std::optional<int32_t> top_logprobs = {};
};

}  // namespace baton
