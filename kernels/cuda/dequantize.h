#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// FP8 -> BF16. Exact (kernels/dequantize.h). cols are a multiple of 16, rows of 16-byte pieces.

// Weights with an FP32 scale per 128 x 128 block, as Linear keeps them:
// scales [ceil(rows / 128), scale_stride].
struct DequantizeBlocksParams {
  MatrixView<const uint8_t> codes;
  const float* scales = nullptr;
  int64_t scale_stride = 0;
  MatrixView<BFloat16> y;
};
void DequantizeBlocks(const DequantizeBlocksParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
