#pragma once

#include <cstdint>

#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/router.h. exp, log1p and sqrt are the device's: scores may differ by an ulp or two, so
// that experts whose score + bias differ by less may change places. At most 512 experts, k at most
// 8. A NaN among the logits is chosen and makes the row's weights NaN.
struct RouterParams {
  MatrixView<const float> logits;            // [rows, experts]
  const float* bias = nullptr;               // [experts]; null in hash layers
  MatrixView<const int32_t> hash_experts{};  // [vocabulary, k]; null in score layers
  const int32_t* tokens = nullptr;           // [rows]; read in hash layers only
  const int32_t* sequence = nullptr;         // [rows] of BatchView; null: no row is padded
  float scale = 1;
  MatrixView<int32_t> experts;  // out [rows, k]; -1 for padded rows
  MatrixView<float> weights;    // out [rows, k]; 0 for padded rows
};
void Router(const RouterParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
