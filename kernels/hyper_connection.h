#pragma once

#include <span>

#include "common/base/bf16.h"
#include "kernels/gemm.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

// Manifold-constrained hyper-connections: the residual is four streams of width D, which every
// sub-block reads through `pre`, writes through `post` and mixes through the doubly stochastic
// matrix C. Stream j, channel c of a token is column j * D + c of its row of X.

namespace baton::kernels {

inline constexpr int kStreams = 4;
inline constexpr int kMixes = 2 * kStreams + kStreams * kStreams;  // pre, post, C

// u = fp32(X row), r = rsqrt(mean(u^2) + norm_eps), m = (fn u) * r; all FP32:
//   pre_j  = sigmoid(m_j * scale_0 + base_j) + hc_eps
//   post_j = 2 sigmoid(m_{4+j} * scale_1 + base_{4+j})
//   A_jk   = m_{8+4j+k} * scale_2 + base_{8+4j+k}
//   C      = softmax_k(A) + hc_eps; columns divided by (sum_j + hc_eps); then iterations - 1 times
//            rows divided by (sum_k + hc_eps), columns by (sum_j + hc_eps)
//   x      = bf16(sum_j pre_j u_j)
struct HcPreParams {
  MatrixView<const BFloat16> streams;  // X [rows, 4 D]
  const PackedMatrix* fn = nullptr;    // FP32 [24, 4 D]
  std::span<const float> scale = {};   // [3]
  std::span<const float> base = {};    // [24]
  int iterations = 20;
  float norm_eps = 1e-6f;
  float hc_eps = 1e-6f;
  MatrixView<BFloat16> x;  // out [rows, D]: input of the sub-block, before its RMSNorm
  MatrixView<float> post;  // out [rows, 4]
  MatrixView<float> comb;  // out [rows, 16]: C, row-major
};
void HcPre(const HcPreParams& params, ThreadPool& pool);

// In place: X'_k = bf16(post_k * o + sum_j C_jk X_j), FP32 inside.
struct HcPostParams {
  MatrixView<const BFloat16> output;  // o [rows, D]: result of the sub-block
  MatrixView<const float> post;       // [rows, 4]
  MatrixView<const float> comb;       // [rows, 16]
  MatrixView<BFloat16> streams;       // X in, X' out [rows, 4 D]
};
void HcPost(const HcPostParams& params, ThreadPool& pool);

// Collapse before the final norm: pre_j = sigmoid((fn u)_j * r * scale + base_j) + hc_eps,
// x = bf16(sum_j pre_j u_j).
struct HcHeadParams {
  MatrixView<const BFloat16> streams;  // X [rows, 4 D]
  const PackedMatrix* fn = nullptr;    // FP32 [4, 4 D]
  float scale = 0;
  std::span<const float> base = {};  // [4]
  float norm_eps = 1e-6f;
  float hc_eps = 1e-6f;
  MatrixView<BFloat16> x;  // out [rows, D]
};
void HcHead(const HcHeadParams& params, ThreadPool& pool);

}  // namespace baton::kernels
