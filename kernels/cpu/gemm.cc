#include "kernels/gemm.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/gemm_block.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

template <typename T>
std::vector<T> Pack(MatrixView<const T> rows) {
  constexpr int64_t kPanel = PackedMatrix::kPanelRows;
  const int64_t panels = (rows.rows + kPanel - 1) / kPanel;
  std::vector<T> packed(panels * kPanel * rows.cols);
  for (int64_t row = 0; row < rows.rows; ++row) {
    T* panel = packed.data() + row / kPanel * kPanel * rows.cols;
    for (int64_t col = 0; col < rows.cols; ++col) {
      panel[col * kPanel + row % kPanel] = rows.Row(row)[col];
    }
  }
  return packed;
}

// x as contiguous FP32.
std::vector<float> WidenRows(MatrixView<const BFloat16> x) {
  std::vector<float> wide(x.rows * x.cols);
  const int64_t whole = x.cols / 16 * 16;
  for (int64_t row = 0; row < x.rows; ++row) {
    float* target = wide.data() + row * x.cols;
    Isa().widen(x.Row(row), whole, target);
    for (int64_t col = whole; col < x.cols; ++col) {
      target[col] = static_cast<float>(x.Row(row)[col]);
    }
  }
  return wide;
}

template <typename Y>
void RunBlock(MatrixView<const BFloat16> x, const PackedMatrix& w, int64_t first_panel,
              int64_t end_panel, MatrixView<Y> y) {
  const std::vector<float> wide = WidenRows(x);
  GemmBlock block = {.x = wide.data(),
                     .rows = x.rows,
                     .k = x.cols,
                     .bf16_panels = w.is_f32() ? nullptr : w.bf16_panels(),
                     .f32_panels = w.is_f32() ? w.f32_panels() : nullptr,
                     .first_panel = first_panel,
                     .end_panel = end_panel,
                     .columns = w.rows(),
                     .y_stride = y.stride};
  if constexpr (std::is_same_v<Y, float>) {
    block.y_f32 = y.data;
  } else {
    block.y_bf16 = y.data;
  }
  Isa().gemm(block);
}

template <typename Y>
void Run(MatrixView<const BFloat16> x, const PackedMatrix& w, MatrixView<Y> y, ThreadPool& pool) {
  BATON_CHECK(x.cols == w.cols() && y.cols == w.rows() && x.rows == y.rows)
      << "x [" << x.rows << ", " << x.cols << "], w [" << w.rows() << ", " << w.cols() << "], y ["
      << y.rows << ", " << y.cols << "]";
  if (x.rows == 0 || w.rows() == 0) return;
  const int64_t panels = PanelCount(w);
  const int64_t row_blocks = (x.rows + kGemmBlockRows - 1) / kGemmBlockRows;
  const int64_t panel_work =
      std::min(x.rows, kGemmBlockRows) * PackedMatrix::kPanelRows * std::max<int64_t>(x.cols, 1);
  const int64_t block_panels =
      std::clamp<int64_t>((kGemmBlockWork + panel_work - 1) / panel_work, 1, panels);
  const int64_t panel_blocks = (panels + block_panels - 1) / block_panels;
  pool.For(row_blocks * panel_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / panel_blocks * kGemmBlockRows;
      const int64_t rows = std::min(kGemmBlockRows, x.rows - row);
      const int64_t panel = i % panel_blocks * block_panels;
      RunBlock(x.Rows(row, rows), w, panel, std::min(panel + block_panels, panels),
               y.Rows(row, rows));
    }
  });
}

}  // namespace

PackedMatrix PackedMatrix::FromRows(MatrixView<const BFloat16> rows) {
  PackedMatrix matrix;
  matrix.rows_ = rows.rows;
  matrix.cols_ = rows.cols;
  matrix.bf16_ = Pack(rows);
  return matrix;
}

PackedMatrix PackedMatrix::FromRows(MatrixView<const float> rows) {
  PackedMatrix matrix;
  matrix.rows_ = rows.rows;
  matrix.cols_ = rows.cols;
  matrix.f32_ = Pack(rows);
  return matrix;
}

void Gemm(MatrixView<const BFloat16> x, const PackedMatrix& w, MatrixView<BFloat16> y,
          ThreadPool& pool) {
  Run(x, w, y, pool);
}

void Gemm(MatrixView<const BFloat16> x, const PackedMatrix& w, MatrixView<float> y,
          ThreadPool& pool) {
  Run(x, w, y, pool);
}

void GemmOnThread(MatrixView<const BFloat16> x, const PackedMatrix& w, int64_t first_panel,
                  int64_t end_panel, MatrixView<BFloat16> y) {
  RunBlock(x, w, first_panel, end_panel, y);
}

}  // namespace baton::kernels
