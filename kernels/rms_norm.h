#pragma once

#include <span>

#include "common/base/bf16.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// Per row, FP32 inside: y = bf16(weight * (x * rsqrt(mean(x^2) + eps))).
struct RmsNormParams {
  MatrixView<const BFloat16> x;        // [rows, n], n a multiple of 16
  std::span<const float> weight = {};  // [n]
  float eps = 1e-6f;
  MatrixView<BFloat16> y{};  // [rows, n]; null: not wanted; may be x
  // y after QuantizeActivations, the input of an FP8 or FP4 linear layer; null: not wanted. n must
  // then be a multiple of 128.
  MatrixView<BFloat16> y_quantized{};
};

void RmsNorm(const RmsNormParams& params, ThreadPool& pool);

}  // namespace baton::kernels
