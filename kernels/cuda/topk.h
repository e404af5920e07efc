#pragma once

#include <cstdint>

#include "kernels/cuda/batch.h"

namespace baton::kernels::cuda {

inline constexpr int kMaxTopK = 2048;
inline constexpr int kMaxTopKScores = 1 << 20;

// TopK of kernels/index_select.h, exactly, for the rows [first_row, first_row + rows) of a batch:
// row i chooses among the entries it sees, whose scores are scores[i - first_row][...]. Rows that
// see at most k take all of them, and their scores are not read; padded rows take none.
struct TopKParams {
  BatchView batch;
  int first_row = 0;
  int rows = 0;
  const float* scores = nullptr;  // aligned to 16 bytes
  int64_t stride = 0;             // elements between rows, a multiple of 4
  int max_entries = 0;            // no row sees more; at most kMaxTopKScores
  int32_t* selected = nullptr;    // [batch.rows, k]
  int k = 0;                      // at most kMaxTopK
};
void TopK(const TopKParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
