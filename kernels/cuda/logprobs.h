#pragma once

#include <cstdint>

#include "common/base/token_logprobs.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/logprobs.h for those rows of a step that ask: exp in FP32, sums of them and all else in
// double, so that values are within 1e-6 and the rounding to FP32 of the CPU's. The same ids.
struct LogprobsParams {
  MatrixView<const float> logits;   // [rows, vocabulary], as many columns as int32 can tell
  const int32_t* tokens = nullptr;  // [rows]: where negative (broken logits) nothing is done
  // [rows]: the row of `out` that a row's result goes to; negative: it does not ask.
  const int32_t* out_row = nullptr;
  MatrixView<TokenLogprob> out;  // [rows that ask, 1 + the most that one of them asks for]
};
void Logprobs(const LogprobsParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
