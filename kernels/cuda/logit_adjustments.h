#pragma once

#include <cstdint>

#include "kernels/logit_adjustments.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/logit_adjustments.h, bit for bit, in place; and back, since log-probabilities are of the
// logits as they were. Rows and tokens are not checked: a wrong one is a wild access.
struct AdjustLogitsParams {
  MatrixView<float> logits;                      // [rows, vocabulary]
  const LogitAdjustment* adjustments = nullptr;  // [count]
  float* before = nullptr;                       // out [count]: what logits were
  int64_t count = 0;
};
void AdjustLogits(const AdjustLogitsParams& params, CUstream_st* stream);

// After AdjustLogits with the same parameters: the logits are as before it.
void RestoreLogits(const AdjustLogitsParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
