#pragma once

#include <cstdint>
#include <span>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// Attention of one sequence's rows over the sliding window and compressed entries; every candidate
// vector is key and value at once, shared by all heads. Row i sits at position t = start + i.
// Candidates: positions max(0, t - window + 1) .. t, oldest first, then compressed entries in
// ascending order. Per head, FP32:
//   s_e = scale * (q . k_e),  M = max_e s_e,  P_e = exp(s_e - M)
//   o   = sum_e bf16(P_e) k_e / (sum_e P_e + exp(sink - M))
// The sink has no value and counts once. Result BF16.
struct SparseAttentionParams {
  MatrixView<const BFloat16> q;  // [rows, heads * head_dim]
  int heads = 0;
  std::span<const float> sinks = {};  // [heads]
  float scale = 0;                    // head_dim^-0.5
  int64_t start = 0;                  // position of row 0
  int window = 128;

  MatrixView<const BFloat16> chunk;  // [rows, head_dim]: window rows of this call
  RowRing<BFloat16> ring = {};       // window rows of positions before start

  // Compressed entries. ratio 0: none (window only). Otherwise row i attends selected.Row(i) up to
  // the first -1, or, when selected is null, all entries j < floor((t + 1) / ratio).
  int ratio = 0;
  PagedPool pool{};
  PageTable pages{};
  MatrixView<const int32_t> selected{};  // [rows, k] or null

  MatrixView<BFloat16> out;  // [rows, heads * head_dim]; must not overlap q
};
// Several sequences share the threads: a decoding batch has one row of each.
void SparseAttention(std::span<const SparseAttentionParams> sequences, ThreadPool& pool);

}  // namespace baton::kernels
