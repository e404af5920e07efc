#pragma once

#include <cstdint>

#include "kernels/cuda/batch.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// Makes the arrays of a BatchView on the device, from how far its sequences are: with it a step can
// follow one whose outcome (accepted drafts) the host has not seen yet, and a captured step can be
// replayed over other lengths. Ops derive everything else (places in rings and pages, entries that
// close, keys in sight) from position, start and page table themselves.
struct PlanBatchParams {
  int rows = 0;                        // of the launch: those that no sequence claims are padded
  int sequences = 0;                   // at most kMaxPlannedSequences
  const int32_t* start = nullptr;      // [sequences] position of the first row
  const int32_t* row_count = nullptr;  // [sequences] 0: unused; their sum is at most rows
  // Rows whose logits are wanted: of each sequence the last logits_count[s].
  const int32_t* logits_count = nullptr;  // [sequences]
  int logits_rows = 0;                    // of the launch

  int32_t* row_begin = nullptr;   // out [sequences + 1]
  int32_t* position = nullptr;    // out [rows]; 0 for padded rows
  int32_t* sequence = nullptr;    // out [rows]; -1 for padded rows
  int32_t* logits_row = nullptr;  // out [logits_rows] rows in ascending order, then -1
};
inline constexpr int kMaxPlannedSequences = 1024;

void PlanBatch(const PlanBatchParams& params, CUstream_st* stream);

// starts of the next step: start + accepted + 1 (AcceptDrafts) where a sequence had rows.
void AdvanceStarts(const BatchView& batch, const int32_t* accepted, int32_t* next_start,
                   CUstream_st* stream);

}  // namespace baton::kernels::cuda
