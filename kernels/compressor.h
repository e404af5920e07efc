#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "common/base/cache_ratios.h"
#include "kernels/cache_view.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

// Pooling of token projections into compressed cache entries. A projection row is [c, g] (HCA) or
// [c_a, c_b, g_a, g_b] (CSA), each part head_dim wide, FP32: the output of one Gemm over the
// concatenated rows of wkv and wgate.

namespace baton::kernels {

// g += ape[position mod ratio], in place. rows [n, 2 * width], ape [ratio, width]: the second half
// of each row is its gate. Row i is of position first_position + i.
void AddPositionBias(MatrixView<float> rows, MatrixView<const float> ape, int64_t first_position);

// Entry j, per channel: sum_i softmax_i(g_i) c_i over
//   HCA: tokens 128 j .. 128 j + 127,
//   CSA: the a parts of tokens 4 j - 4 .. 4 j - 1 and the b parts of tokens 4 j .. 4 j + 3.
// Positions < 0 count as c = 0, g = -inf. FP32 inside, rounded to BF16.
struct PoolEntriesParams {
  int ratio = kCsaRatio;          // kCsaRatio (overlapping) or kHcaRatio
  int head_dim = 0;               // multiple of 16
  int64_t first_entry = 0;        // entry of output row 0
  int64_t chunk_start = 0;        // position of chunk row 0
  MatrixView<const float> chunk;  // rows of this call, gate with its bias
  RowRing<float> ring = {};       // rows of positions before chunk_start
  MatrixView<BFloat16> pooled;    // out [entries, head_dim]
};
void PoolEntries(const PoolEntriesParams& params, ThreadPool& pool);

}  // namespace baton::kernels
