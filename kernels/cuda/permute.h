#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// Between the router and the grouped products: which rows each expert has, and back. The i-th
// expert of a row is an entry; entries with one of the experts [first_expert, first_expert +
// expert_count) get a slot, slots of an expert follow each
// other in the order of their rows, and experts in the order of their ids.
struct AssignSlotsParams {
  MatrixView<const int32_t> experts;  // [rows, k] without gaps; -1: none (padded rows)
  const float* weights = nullptr;     // [rows, k] without gaps
  int first_expert = 0;
  int expert_count = 0;      // at most kMaxExperts
  int32_t* begin = nullptr;  // out [expert_count + 1]; the last is the number of slots
  int32_t* row = nullptr;    // out [rows * k] row of a slot; unused slots stay as they were
  float* weight = nullptr;   // out [rows * k] routing weight of a slot, likewise
  int32_t* slot = nullptr;   // out [rows, k] slot of an entry, -1 without one of the experts
};
void AssignSlots(const AssignSlotsParams& params, CUstream_st* stream);

// out = bf16(sum of y over the row's slots, which are in ascending expert id, then shared), FP32
// sum in that order, as kernels/moe.h has it. All rows are aligned to 16 bytes; D is a multiple
// of 8.
struct CombineExpertsParams {
  MatrixView<const BFloat16> y;       // [slots, D]
  MatrixView<const int32_t> slot;     // [rows, k]
  MatrixView<const BFloat16> shared;  // [rows, D]
  MatrixView<BFloat16> out;           // [rows, D]; may be shared
};
void CombineExperts(const CombineExpertsParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
