#pragma once

#include <cstdint>
#include <span>

#include "common/base/token_logprobs.h"

// How likely the model finds tokens, by the logits l as they leave the head: before temperature,
// filters and ids that may not be chosen.

namespace baton::kernels {

//   logprob(i) = l[i] - m - log(sum over all ids j of exp(l[j] - m)),   m = max l
//
// in double precision, rounded to FP32; -infinity where the logit is. No logit may be NaN or
// +infinity, and one at least is finite.
//
// row[0] = `token`, an id of the vocabulary; row[1], row[2], ... = the ids with the largest logits,
// largest first, the lower id first of equal ones (-0 equals +0). Where there are no more ids: id
// -1, -infinity.
void Logprobs(std::span<const float> logits, int32_t token, std::span<TokenLogprob> row);

}  // namespace baton::kernels
