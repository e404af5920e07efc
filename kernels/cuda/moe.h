#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// A layer of kernels/moe.h is on the device
//   Router -> AssignSlots -> ExpertGateUp -> ExpertDown      (router.h, permute.h,
//   grouped_experts.h) Linear (gate_up) -> GateSharedExpert -> Linear (down)    the shared expert,
//   FP8 (gemm.h) CombineExperts                                           (permute.h)

// v = QuantizeActivations(bf16(silu(min(a, limit)) * clamp(b, +-limit))) as codes and scales, where
// a = gate_up[:, 0 .. F) and b = gate_up[:, F .. 2 F). F is a multiple of 128.
struct GateSharedExpertParams {
  MatrixView<const BFloat16> gate_up;  // [rows, 2 F], rows aligned to 16 bytes
  float limit = 10;
  MutableFp8Rows v;  // [rows, F]
};
void GateSharedExpert(const GateSharedExpertParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
