#pragma once

#include <cstdint>

#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// The sampler of engine/sampler/sampler.h on the device: the same filters in the same order
// (temperature, top_k, top_p over what top_k left, min_p), the same Philox number of (seed,
// position), ties to the lower id, the distribution function over ascending ids. Weights are exp in
// double precision, but sums have another order: the same token comes out unless the random number
// or a filter's bound lies within about 1e-13 of the border between two.

// How one row is sampled; rows lie in device memory.
struct SampleRow {
  float temperature = 1;  // 0: the largest logit
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;  // 0: off
  uint64_t seed = 0;
  int64_t position = 0;  // the token's index in its sequence
  // Ids that may not be chosen (those that end a sequence before min_tokens), ascending, in
  // SampleParams::banned; if nothing else is left they may.
  int32_t banned_begin = 0;
  int32_t banned_count = 0;
};

inline constexpr int64_t kMaxSampleVocabulary = int64_t{1} << 17;

struct SampleParams {
  MatrixView<const float> logits;   // [rows, vocabulary], at most kMaxSampleVocabulary columns
  const SampleRow* rows = nullptr;  // [rows]
  const int32_t* banned = nullptr;
  // out [rows]; kBrokenLogits where a logit is NaN or +infinity or none is finite.
  int32_t* tokens = nullptr;
};
inline constexpr int32_t kBrokenLogits = -2;

void Sample(const SampleParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
