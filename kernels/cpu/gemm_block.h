#pragma once

#include "kernels/gemm.h"
#include "kernels/matrix.h"

namespace baton::kernels {

// Rows that one block of a product takes: what fits the second-level cache as FP32.
inline constexpr int64_t kGemmBlockRows = 48;
// Multiply-adds below which handing work to another thread costs more than it saves.
inline constexpr int64_t kGemmBlockWork = 1 << 21;

// The columns of Gemm that panels [first_panel, end_panel) of w give, on the calling thread.
void GemmOnThread(MatrixView<const BFloat16> x, const PackedMatrix& w, int64_t first_panel,
                  int64_t end_panel, MatrixView<BFloat16> y);

inline int64_t PanelCount(const PackedMatrix& w) {
  return (w.rows() + PackedMatrix::kPanelRows - 1) / PackedMatrix::kPanelRows;
}

}  // namespace baton::kernels
