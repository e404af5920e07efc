#pragma once

#include <cstdint>

#include "engine/model/forward_context.h"
#include "kernels/index_select.h"
#include "kernels/sparse_attention.h"

// What an observer is told about single rows of one sequence and nothing else needs: plain loops.
// `first_row` is the batch row of the sequence's first.

namespace baton::engine {

// Calls on_scores for every row, with the index and the pages that selected.
void ReportScores(const kernels::IndexSelectParams& params, int layer, int64_t first_row,
                  ForwardContext& context);

// Calls on_attention for every row; the window ring must not have been written yet.
void ReportAttention(const kernels::SparseAttentionParams& params, int layer, int64_t first_row,
                     const ForwardObserver& observer);

}  // namespace baton::engine
