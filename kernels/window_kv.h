#pragma once

#include <cstdint>
#include <span>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/matrix.h"
#include "kernels/numeric.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// In place: the row of the sliding window that is key and value at once:
// RMSNorm(weight), rotation of the last 64 channels, and under kReference FakeQuantFp8 with groups
// of 64 on the channels before them.
struct WindowKvParams {
  MatrixView<BFloat16> kv;             // [rows, head_dim]
  std::span<const float> weight = {};  // [head_dim]
  float eps = 1e-6f;
  MatrixView<const float> rope;  // [rows, 64]
  Numerics numerics = Numerics::kReference;
};
void WindowKv(const WindowKvParams& params, ThreadPool& pool);

// ring row of position first_position + i = rows[i]. Rows that would be overwritten by later ones
// of the same call are skipped. rows.cols == ring.width.
void WriteRows(MatrixView<const BFloat16> rows, int64_t first_position, RowRing<BFloat16> ring);
void WriteRows(MatrixView<const float> rows, int64_t first_position, RowRing<float> ring);

}  // namespace baton::kernels
