#pragma once

#include <cstdint>
#include <span>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/matrix.h"
#include "kernels/numeric.h"
#include "kernels/parallel.h"

// The lightning indexer: which compressed entries a query of a CSA layer attends.

namespace baton::kernels {

inline constexpr int kIndexDim = 128;

// In place, per row and head of q [rows, heads * 128]: rotation of the last 64 channels,
// Hadamard128, and under kReference FakeQuantFp4; each step rounded to BF16.
struct IndexQueryParams {
  MatrixView<BFloat16> q;
  int heads = 0;
  MatrixView<const float> rope;  // [rows, 64]
  Numerics numerics = Numerics::kReference;
};
void IndexQuery(const IndexQueryParams& params, ThreadPool& pool);

// In place: w = bf16(w * (128 * heads)^-0.5), w [rows, heads].
void ScaleIndexWeights(MatrixView<BFloat16> w);

// The `selected.size()` entries with the highest scores among scores[0, n): ascending indices, then
// -1 where n is smaller. Ties go to the lowest index; -0 equals +0 and NaN ranks last.
void TopK(std::span<const float> scores, std::span<int32_t> selected);

// Selection of one sequence's rows: row i sits at position start + i and sees the entries
// j < floor((position + 1) / 4).
struct IndexSelectParams {
  MatrixView<const BFloat16> q;  // [rows, heads * 128] from IndexQuery
  MatrixView<const BFloat16> w;  // [rows, heads] from ScaleIndexWeights
  int heads = 0;
  int64_t start = 0;
  PagedPool keys = {};
  PageTable pages = {};
  MatrixView<int32_t> selected;  // out [rows, topk]: ascending, -1 padding at the end
};

// score(i, j) = sum_h w_h relu(q_h . K_j), FP32 throughout: dot products over ascending channels,
// the sum over ascending heads (the reference rounds to BF16 in between, which only moves near
// ties). scores [rows, >= entries visible to the last row]; entries a row does not see are left
// alone. For tests and tools: memory of rows x entries is the caller's.
void IndexLogits(const IndexSelectParams& params, MatrixView<float> scores, ThreadPool& pool);

// IndexLogits and TopK for several sequences, a bounded number of rows at a time: scratch stays
// below kIndexScratchBytes unless a single row needs more. Rows that see at most topk entries are
// not scored.
inline constexpr int64_t kIndexScratchBytes = int64_t{16} << 20;
void IndexSelect(std::span<const IndexSelectParams> sequences, ThreadPool& pool);

}  // namespace baton::kernels
