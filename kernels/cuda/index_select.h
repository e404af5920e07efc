#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/cuda/batch.h"

namespace baton::kernels::cuda {

// IndexSelect of kernels/index_select.h for all rows of a batch: IndexLogits and TopK over as many
// rows at a time as the scratch holds. Queries and weights come from IndexQuery. Padded rows select
// nothing.
struct IndexSelectParams {
  BatchView batch;
  const BFloat16* q = nullptr;  // [batch.rows, heads * 128]
  const BFloat16* w = nullptr;  // [batch.rows, heads]
  int heads = 0;
  PagedPool keys;
  int max_entries = 0;          // no row sees more
  int32_t* selected = nullptr;  // [batch.rows, k]
  int k = 0;
  float* scratch = nullptr;  // aligned to 16 bytes
  int64_t scratch_bytes = 0;
};
void IndexSelect(const IndexSelectParams& params, CUstream_st* stream);

// What IndexSelect makes good use of: at most kIndexSelectScratchBytes, at any context. Less works
// down to one row's scores.
inline constexpr int64_t kIndexSelectScratchBytes = int64_t{176} << 20;
int64_t IndexSelectScratchBytes(int rows, int max_entries);

}  // namespace baton::kernels::cuda
