#pragma once

#include "common/base/bf16.h"
#include "kernels/compressor.h"
#include "kernels/cuda/batch.h"
#include "kernels/cuda/rope.h"
#include "kernels/matrix.h"
#include "kernels/numeric.h"

namespace baton::kernels::cuda {

// All that a compressor does with its projections, for every sequence of the batch: AddPositionBias
// and PoolEntries of kernels/compressor.h, StoreEntries of the entries that the batch closes, and
// WriteRows of the rows themselves.
//
// Pooling stands in front of the store, in the same kernel: a decoding step runs a compressor in 62
// places, where three launches each cost more than their work, and in prefill the pooled rows would
// otherwise pass through memory. The pooled row meets the store's template as BF16 in shared
// memory, rounded where PoolEntries rounds it. When a sequence may have more rows than the ring has
// to spare, rows are written by a second launch: earlier positions of the ring are still being
// read. Softmax sums in FP32 as the CPU does over 8 candidates (4:1), in eight partial sums over
// 128 (128:1); exponentials differ by an ulp or two.
//
// ratio 4 with head_dim 128 or 512, ratio 128 with head_dim 512. Rows and tables are aligned to 16
// bytes.
struct CompressParams {
  BatchView batch = {};
  int ratio = kCsaRatio;
  MatrixView<const float> chunk;     // [rows, width], gates without bias; width 4 or 2 head_dim
  const float* bias = nullptr;       // ape [ratio, width / 2]
  SlotRings<float> ring = {};        // rows with their bias; >= 8 (4:1) or 128 (128:1) rows a slot
  const BFloat16* weight = nullptr;  // [head_dim]
  float eps = 1e-6f;
  EntryRope rope = {};  // with step `ratio`
  Numerics numerics = Numerics::kReference;
  PagedPool pool = {};  // data on the device
};
void Compress(const CompressParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
