#pragma once

#include <cstdint>
#include <span>

#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// score = sqrt(softplus(logit)), softplus(x) = log1p(exp(x)), x itself above 20. The k experts with
// the largest score + bias, or those of the token's row of `hash_experts`. Their weights are the
// scores without bias, divided by their sum, times `scale`. FP32.
struct RouterParams {
  MatrixView<const float> logits;            // [rows, experts]
  std::span<const float> bias = {};          // [experts]; empty in hash layers
  MatrixView<const int32_t> hash_experts{};  // [vocabulary, k]; null in score layers
  std::span<const int32_t> tokens = {};      // [rows]; read in hash layers only
  float scale = 1;
  MatrixView<int32_t> experts;  // out [rows, k], ascending ids; ties go to the lower id
  MatrixView<float> weights;    // out [rows, k]
};
void Router(const RouterParams& params, ThreadPool& pool);

}  // namespace baton::kernels
