#include "kernels/cuda/logit_adjustments.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;

unsigned Blocks(int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

__device__ float& LogitOf(const AdjustLogitsParams& params, int64_t i) {
  return params.logits.Row(params.adjustments[i].row)[params.adjustments[i].token];
}

// The intrinsics keep the product and the sum from becoming one rounding.
__global__ void __launch_bounds__(kThreads) AdjustKernel(AdjustLogitsParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.count) return;
  const LogitAdjustment adjustment = params.adjustments[i];
  float& logit = LogitOf(params, i);
  const float before = logit;
  const float scaled = before > 0 ? __fdiv_rn(before, adjustment.repetition)
                                  : __fmul_rn(before, adjustment.repetition);
  logit = __fadd_rn(scaled, adjustment.add);
  params.before[i] = before;
}

__global__ void __launch_bounds__(kThreads) RestoreKernel(AdjustLogitsParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < params.count) LogitOf(params, i) = params.before[i];
}

}  // namespace

void AdjustLogits(const AdjustLogitsParams& params, CUstream_st* stream) {
  if (params.count == 0) return;
  AdjustKernel<<<Blocks(params.count), kThreads, 0, stream>>>(params);
  CheckLaunch("AdjustLogits");
}

void RestoreLogits(const AdjustLogitsParams& params, CUstream_st* stream) {
  if (params.count == 0) return;
  RestoreKernel<<<Blocks(params.count), kThreads, 0, stream>>>(params);
  CheckLaunch("RestoreLogits");
}

}  // namespace baton::kernels::cuda
