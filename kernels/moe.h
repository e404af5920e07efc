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

// The same in two parts, for experts that lie on several ranks: each computes its own over the rows
// of all, and whoever has a row adds up what the ranks say.

// sum = y_e of the row's experts in [first_expert, first_expert + routed.size()), FP32, from 0 in
// ascending expert id. Expert e is routed[e - first_expert].
struct MoePartParams {
  MatrixView<const BFloat16> x;       // [rows, D], quantised
  MatrixView<const int32_t> experts;  // [rows, k], ascending ids
  MatrixView<const float> weights;    // [rows, k]
  int first_expert = 0;
  std::span<const ExpertWeights> routed = {};
  float limit = 10;
  MatrixView<float> sum;  // out [rows, D]
};
void MoePart(const MoePartParams& params, ThreadPool& pool);

// out = bf16(sums of the ranks in their order, then y_shared), FP32 sum.
struct MoeJoinParams {
  MatrixView<const BFloat16> x;                        // [rows, D], quantised
  std::span<const MatrixView<const float>> sums = {};  // of each rank [rows, D]
  const ExpertWeights* shared = nullptr;
  float limit = 10;
  MatrixView<BFloat16> out;  // [rows, D]
};
void MoeJoin(const MoeJoinParams& params, ThreadPool& pool);

}  // namespace baton::kernels
