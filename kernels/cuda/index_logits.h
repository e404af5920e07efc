#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/cuda/batch.h"

namespace baton::kernels::cuda {

// IndexLogits of kernels/index_select.h for the rows [first_row, first_row + rows) of a batch:
// scores[i][j] of row first_row + i and every entry j it sees; nothing else is written. Dot
// products and the sum over heads are FP32, in the order of the tensor cores; the same for every
// batch. Keys of all formats are read as the BF16 values that DecodeEntry gives. A NaN in a key or
// a query makes its scores NaN.
struct IndexLogitsParams {
  BatchView batch;
  int first_row = 0;
  int rows = 0;
  const BFloat16* q = nullptr;  // [batch.rows, heads * 128], aligned to 16 bytes
  const BFloat16* w = nullptr;  // [batch.rows, heads]
  int heads = 0;                // at most 64
  PagedPool keys;               // on the device; entries_per_page a power of two
  int max_entries = 0;          // no row sees more
  int min_entries = 0;          // rows that see at most that many need not be scored
  float* scores = nullptr;
  int64_t stride = 0;  // elements between rows of scores, >= max_entries
};

// The fastest variant that the current device runs.
void IndexLogits(const IndexLogitsParams& params, CUstream_st* stream);

// wgmma; see variants.h.
void IndexLogitsSm90a(const IndexLogitsParams& params, CUstream_st* stream);
// mma.sync.
void IndexLogitsPortable(const IndexLogitsParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
