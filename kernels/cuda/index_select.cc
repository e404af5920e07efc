#include "kernels/cuda/index_select.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/index_logits.h"
#include "kernels/cuda/topk.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kRowTile = 4;  // what one block of IndexLogits scores together

int64_t ScoreStride(int max_entries) { return (int64_t{max_entries} + 3) / 4 * 4; }

}  // namespace

int64_t IndexSelectScratchBytes(int rows, int max_entries) {
  const int64_t row_bytes = ScoreStride(max_entries) * static_cast<int64_t>(sizeof(float));
  return std::min(rows * row_bytes, std::max(row_bytes, kIndexSelectScratchBytes));
}

void IndexSelect(const IndexSelectParams& params, CUstream_st* stream) {
  const int64_t stride = ScoreStride(params.max_entries);
  const int64_t row_bytes = stride * static_cast<int64_t>(sizeof(float));
  const bool scored = params.max_entries > params.k;
  int64_t rows_at_once = params.batch.rows;
  if (scored) rows_at_once = std::min(rows_at_once, params.scratch_bytes / row_bytes);
  if (rows_at_once >= kRowTile) rows_at_once -= rows_at_once % kRowTile;
  BATON_CHECK(rows_at_once > 0 || params.batch.rows == 0)
      << "scratch of " << params.scratch_bytes << " bytes for rows of " << row_bytes;
  for (int64_t row = 0; row < params.batch.rows; row += rows_at_once) {
    const int first_row = static_cast<int>(row);
    const int rows = static_cast<int>(std::min(rows_at_once, params.batch.rows - row));
    if (scored) {
      IndexLogits({.batch = params.batch,
                   .first_row = first_row,
                   .rows = rows,
                   .q = params.q,
                   .w = params.w,
                   .heads = params.heads,
                   .keys = params.keys,
                   .max_entries = params.max_entries,
                   .min_entries = params.k,
                   .scores = params.scratch,
                   .stride = stride},
                  stream);
    }
    TopK({.batch = params.batch,
          .first_row = first_row,
          .rows = rows,
          .scores = params.scratch,
          .stride = stride,
          .max_entries = params.max_entries,
          .selected = params.selected,
          .k = params.k},
         stream);
  }
}

}  // namespace baton::kernels::cuda
