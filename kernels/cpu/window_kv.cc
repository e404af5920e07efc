#include "kernels/window_kv.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/rope.h"

namespace baton::kernels {

namespace {

template <typename T>
void CopyRows(MatrixView<const T> rows, int64_t first_position, RowRing<T> ring) {
  BATON_CHECK(rows.cols == ring.width) << "row width " << rows.cols << ", ring " << ring.width;
  for (int64_t i = std::max<int64_t>(0, rows.rows - ring.rows); i < rows.rows; ++i) {
    std::copy_n(rows.Row(i), rows.cols, ring.Row(first_position + i));
  }
}

}  // namespace

void WindowKv(const WindowKvParams& params, ThreadPool& pool) {
  const MatrixView<BFloat16> kv = params.kv;
  const int n = static_cast<int>(kv.cols);
  BATON_CHECK(n % 64 == 0 && n > kRopeDim && static_cast<int64_t>(params.weight.size()) == n &&
              params.rope.rows == kv.rows)
      << "width " << n;
  const IsaKernels& isa = Isa();
  pool.For(kv.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      BFloat16* row = kv.Row(i);
      const float factor = 1.0f / std::sqrt(isa.mean_square(row, n) + params.eps);
      isa.scale_row(row, params.weight.data(), factor, n, row);
      RotateRow(row + n - kRopeDim, params.rope.Row(i));
      if (params.numerics == Numerics::kReference) {
        isa.fake_quant_fp8(row, row, n - kRopeDim, 64);
      }
    }
  });
}

void WriteRows(MatrixView<const BFloat16> rows, int64_t first_position, RowRing<BFloat16> ring) {
  CopyRows(rows, first_position, ring);
}

void WriteRows(MatrixView<const float> rows, int64_t first_position, RowRing<float> ring) {
  CopyRows(rows, first_position, ring);
}

}  // namespace baton::kernels
