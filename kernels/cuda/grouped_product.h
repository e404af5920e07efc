#pragma once

#include "kernels/cuda/grouped_experts.h"

namespace baton::kernels::cuda {

// One of the two products of grouped_experts.h. kGated: the rows of weights are those of w1 and w3,
// and every 256 of them become 128 columns of hidden; otherwise they are columns of y.
struct GroupedParams {
  const std::byte* weights;
  int64_t expert_bytes;
  const float* row_scales;
  int64_t expert_scales;
  int experts;
  int row_blocks;  // of 256 rows
  int steps;       // of 128 columns
  ExpertSlots slots;
  Fp8Rows x;
  float limit;
  MutableFp8Rows hidden;  // of the gated product
  BFloat16* y;            // of the other one
  int64_t y_stride;
};

// wgmma; see variants.h.
template <bool kGated>
void GroupedProductSm90a(const GroupedParams& params, CUstream_st* stream);
// mma.sync.
template <bool kGated>
void GroupedProductPortable(const GroupedParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
