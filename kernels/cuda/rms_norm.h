#pragma once

#include "common/base/bf16.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/rms_norm.h. The sum of squares has one order for a width, not the CPU's: the factor may
// differ by an ulp of FP32. Width a multiple of 8, at most 8192, of 128 with `quantized`; rows are
// aligned to 16 bytes. y may be x.
struct RmsNormParams {
  MatrixView<const BFloat16> x;      // [rows, n]
  const BFloat16* weight = nullptr;  // [n]
  float eps = 1e-6f;
  MatrixView<BFloat16> y = {};    // null: not wanted
  MutableFp8Rows quantized = {};  // of y; codes null: not wanted
};
void RmsNorm(const RmsNormParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
