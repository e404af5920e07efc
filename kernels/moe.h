#pragma once

#include <cstdint>
#include <span>

#include "common/base/bf16.h"
#include "kernels/gemm.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

struct ExpertWeights {
  PackedMatrix gate_up;  // [2 F, D]: the rows of w1 (gate), then those of w3 (up)
  PackedMatrix down;     // [D, F]: w2
};

// Expert e on a row with routing weight p (1 for the shared expert):
//   a, b = bf16(gate_up x);  a = min(a, limit);  b = clamp(b, +-limit)
//   v = bf16(p * silu(a) * b);  y_e = bf16(down QuantizeActivations(v))
// out = bf16(sum of the row's y_e in ascending expert id, then y_shared), FP32 sum.
struct MoeParams {
  MatrixView<const BFloat16> x;       // [rows, D], quantised (RmsNormParams::y_quantized)
  MatrixView<const int32_t> experts;  // [rows, k], ascending ids (Router)
  MatrixView<const float> weights;    // [rows, k]
  std::span<const ExpertWeights> routed = {};
  const ExpertWeights* shared = nullptr;
  float limit = 10;
  MatrixView<BFloat16> out;  // [rows, D]
};
void Moe(const MoeParams& params, ThreadPool& pool);

}  // namespace baton::kernels
