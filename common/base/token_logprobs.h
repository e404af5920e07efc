#pragma once

#include <cstdint>
#include <vector>

// How likely a model found tokens at one place of a sequence: log-probabilities as
// kernels/logprobs.h defines them.

namespace baton {

// The most tokens of a place that may be asked for beside the one that stands there.
inline constexpr int32_t kMaxTopLogprobs = 20;

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

struct TokenLogprobs {
  TokenLogprob chosen;            // the token that stands there, likely or not
  std::vector<TokenLogprob> top;  // the likeliest ones, the likeliest first

  friend bool operator==(const TokenLogprobs&, const TokenLogprobs&) = default;
};

}  // namespace baton
