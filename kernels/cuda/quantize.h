#pragma once

#include "common/base/bf16.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// Codes times scale equal QuantizeActivations of kernels/quantize.h exactly. Rows of x are aligned
// to 16 bytes.
void Quantize(MatrixView<const BFloat16> x, const MutableFp8Rows& y, CUstream_st* stream);

}  // namespace baton::kernels::cuda
