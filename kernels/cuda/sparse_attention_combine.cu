#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/cuda/sparse_attention_rows.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kDim = 512;
constexpr int kThreads = kDim / 4;
constexpr float kLog2E = 1.4426950408889634f;

// One block a row and head. Empty parts are passed over by their sum: a part that is all NaN has
// maximum -infinity, too, and must show.
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const __grid_constant__ SparseAttentionParams params,
                  const __grid_constant__ AttentionPlan plan) {
  AwaitPredecessors();
  const int row = plan.first_row + static_cast<int>(blockIdx.x) / params.heads;
  const int head = static_cast<int>(blockIdx.x) % params.heads;
  const int64_t item = int64_t{row - plan.first_row} * plan.head_tiles * plan.splits;
  if (WorkOf(plan, CandidatesOf(params, row), item).parts <= 1) return;
  const int64_t first = PartOf(params, plan, row, head, 0);
  const float* maxima = plan.partial_maxima + first;
  const float* sums = plan.partial_sums + first;
  float maximum = maxima[0];
  for (int i = 1; i < plan.splits; ++i) maximum = fmaxf(maximum, maxima[i]);
  float denominator = exp2f(params.sinks[head] * kLog2E - maximum);
  float4 out = {0, 0, 0, 0};
  for (int i = 0; i < plan.splits; ++i) {
    const float weight = exp2f(maxima[i] - maximum);
    if (sums[i] == 0.0f) continue;
    denominator += weight * sums[i];
    const float4 part =
        reinterpret_cast<const float4*>(plan.partial_outputs + (first + i) * kDim)[threadIdx.x];
    out.x += weight * part.x;
    out.y += weight * part.y;
    out.z += weight * part.z;
    out.w += weight * part.w;
  }
  const float inverse = 1.0f / denominator;
  reinterpret_cast<uint2*>(params.out +
                           (int64_t{row} * params.heads + head) * kDim)[threadIdx.x] = {
      PackBf16(out.x * inverse, out.y * inverse), PackBf16(out.z * inverse, out.w * inverse)};
}

}  // namespace

void CombineSplits(const SparseAttentionParams& params, const AttentionPlan& plan,
                   CUstream_st* stream) {
  const dim3 blocks(static_cast<unsigned>(plan.rows * params.heads));
  LaunchClosely(CombineKernel, {blocks, kThreads}, stream, params, plan);
  CheckLaunch("CombineSplits");
}

}  // namespace baton::kernels::cuda
