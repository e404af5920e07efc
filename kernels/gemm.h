#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/bf16.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// A weight matrix W[n, k] laid out for Gemm: panels of 16 rows, zero rows and one zero column added
// to fill the last panel and to make k even. FP32 panels are [k][16]; BF16 panels are [k /
// 2][16][2], so that a word holds two successive k of a row. Holds whichever it was made from.
// Immutable.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  static PackedMatrix FromRows(MatrixView<const BFloat16> rows);
  static PackedMatrix FromRows(MatrixView<const float> rows);

  int64_t rows() const { return rows_; }  // n, output features
  int64_t cols() const { return cols_; }  // k, input features
  bool is_f32() const { return !f32_.empty(); }
  const BFloat16* bf16_panels() const { return bf16_.data(); }
  const float* f32_panels() const { return f32_.data(); }

  static constexpr int kPanelRows = 16;

 private:
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  std::vector<BFloat16> bf16_;
  std::vector<float> f32_;
};

// y[m, n] = sum_k x[m, k] * w[n, k]. Each output is one chain of fused multiply-adds over ascending
// k in FP32, then rounded to y's type: a row's bits depend neither on the other rows nor on the
// instruction set. x must not overlap y. Serves every linear layer: with x quantised by
// QuantizeActivations and w dequantised it equals the FP8 and FP4 products up to summation order.
void Gemm(MatrixView<const BFloat16> x, const PackedMatrix& w, MatrixView<BFloat16> y,
          ThreadPool& pool);
void Gemm(MatrixView<const BFloat16> x, const PackedMatrix& w, MatrixView<float> y,
          ThreadPool& pool);

}  // namespace baton::kernels
