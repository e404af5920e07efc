#include "kernels/gemm.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/gemm_block.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

constexpr int64_t kPanelStep = 8;  // a multiple of every register tile's panels

// Where W[row % 16, col] lies within its panel.
int64_t PlaceInPanel(int64_t row, int64_t col, bool f32) {
  constexpr int64_t kPanel = PackedMatrix::kPanelRows;
  const int64_t lane = row % kPanel;
  return f32 ? col * kPanel + lane : col / 2 * 2 * kPanel + 2 * lane + col % 2;
}

template <typename T>
std::vector<T> Pack(MatrixView<const T> rows) {
  constexpr int64_t kPanel = PackedMatrix::kPanelRows;
  const int64_t panel_size = (rows.cols + 1) / 2 * 2 * kPanel;
  std::vector<T> packed((rows.rows + kPanel - 1) / kPanel * panel_size);
  for (int64_t row = 0; row < rows.rows; ++row) {
    T* panel = packed.data() + row / kPanel * panel_size;
    for (int64_t col = 0; col < rows.cols; ++col) {
      panel[PlaceInPanel(row, col, std::is_same_v<T, float>)] = rows.Row(row)[col];
    }
  }
  return packed;
}

// x as contiguous FP32.
std::unique_ptr<float[]> WidenRows(MatrixView<const BFloat16> x) {
  auto wide = std::make_unique_for_overwrite<float[]>(x.rows * x.cols);
  const int64_t whole = x.cols / 16 * 16;
  for (int64_t row = 0; row < x.rows; ++row) {
    float* target = wide.get() + row * x.cols;
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
  const std::unique_ptr<float[]> wide = WidenRows(x);
  GemmBlock block = {.x = wide.get(),
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
  // Whole register tiles.
  const int64_t wanted_panels =
      (kGemmBlockWork / panel_work + kPanelStep) / kPanelStep * kPanelStep;
  const int64_t block_panels = std::min(wanted_panels, panels);
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
