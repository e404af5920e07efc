#pragma once

#include "common/base/bf16.h"
#include "kernels/cuda/batch.h"
#include "kernels/matrix.h"
#include "kernels/numeric.h"

namespace baton::kernels::cuda {

// WindowKv of kernels/window_kv.h, head_dim 512, to the same bits; with `ring`, WriteRows in the
// same launch. That is for steps whose sequences have few rows: the ring must keep the window of
// the first row while the last one is written, so max_rows <= ring.rows - (window - 1). Longer
// chunks attend first and call WriteRings afterwards. Rows are aligned to 16 bytes.
struct WindowKvParams {
  BatchView batch = {};
  MatrixView<BFloat16> kv;           // [rows, 512], in place
  const BFloat16* weight = nullptr;  // [512]
  float eps = 1e-6f;
  const float* rope = nullptr;  // [rows, 64]
  Numerics numerics = Numerics::kReference;
  int window = 128;
  SlotRings<BFloat16> ring = {};  // data null: not now
};
void WindowKv(const WindowKvParams& params, CUstream_st* stream);

// WriteRows of kernels/window_kv.h for every sequence of the batch: the last ring.rows rows of each
// go to their places. rows.cols == ring.width; row bytes are a multiple of 16. With `bias`
// [bias_rows, width / 2] the second half of the row of position p is stored plus bias row
// p mod bias_rows (AddPositionBias on the way).
void WriteRings(const BatchView& batch, MatrixView<const BFloat16> rows, SlotRings<BFloat16> ring,
                CUstream_st* stream);
void WriteRings(const BatchView& batch, MatrixView<const float> rows, SlotRings<float> ring,
                const float* bias, int bias_rows, CUstream_st* stream);

// The other way: row r of `rows` [batch.rows, ring.width] becomes what the ring has of its
// position.
void ReadRings(const BatchView& batch, SlotRings<const BFloat16> ring, MatrixView<BFloat16> rows,
               CUstream_st* stream);

}  // namespace baton::kernels::cuda
