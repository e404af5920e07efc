#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/cuda/sparse_attention_rows.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kSharing = 2;  // warps that add up a row and head, each every other part
constexpr int kLoads = kKvDim / 4 / 32;

// A part without candidates has maximum -infinity, sum 0 and zeros; one that is all NaN shows.
__global__ void __launch_bounds__(32 * kWarps)
    CombineKernel(const __grid_constant__ SparseAttentionParams params,
                  const __grid_constant__ AttentionPlan plan) {
  AwaitPredecessors();
  __shared__ float4 added[kWarps / kSharing][kLoads][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row_head = static_cast<int>(blockIdx.x) * (kWarps / kSharing) + warp / kSharing;
  const int row = plan.first_row + row_head / params.heads;
  const int head = row_head % params.heads;
  int parts = 0;
  if (row_head < plan.rows * params.heads) {
    const int64_t item = int64_t{row - plan.first_row} * plan.head_tiles * plan.splits;
    parts = WorkOf(plan, CandidatesOf(params, row), item).parts;
  }
  if (parts <= 1) parts = 0;
  const int64_t first = PartOf(params, plan, row, head, 0);
  const float* maxima = plan.partial_maxima + first;
  const float* sums = plan.partial_sums + first;
  float maximum = -INFINITY;
  for (int i = lane; i < parts; i += 32) maximum = fmaxf(maximum, maxima[i]);
  maximum = LaneMax<32>(maximum);
  float denominator = 0;
  for (int i = lane; i < parts; i += 32) {
    denominator += exp2f(maxima[i] - maximum) * sums[i];
  }
  denominator = LaneSum<32>(denominator);
  float4 out[kLoads] = {};
#pragma unroll 2
  for (int i = warp % kSharing; i < parts; i += kSharing) {
    const float4* part =
        reinterpret_cast<const float4*>(plan.partial_outputs + (first + i) * kKvDim);
    const float weight = exp2f(maxima[i] - maximum);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const float4 values = part[j * 32 + lane];
      out[j].x += weight * values.x;
      out[j].y += weight * values.y;
      out[j].z += weight * values.z;
      out[j].w += weight * values.w;
    }
  }
  if (warp % kSharing != 0) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) added[warp / kSharing][j][lane] = out[j];
  }
  __syncthreads();
  if (warp % kSharing != 0 || parts == 0) return;
  denominator += exp2f(params.sinks[head] * kLog2E - maximum);
  const float inverse = 1.0f / denominator;
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    const float4 other = added[warp / kSharing][j][lane];
    reinterpret_cast<uint2*>(params.out +
                             (int64_t{row} * params.heads + head) * kKvDim)[j * 32 + lane] = {
        PackBf16((out[j].x + other.x) * inverse, (out[j].y + other.y) * inverse),
        PackBf16((out[j].z + other.z) * inverse, (out[j].w + other.w) * inverse)};
  }
}

}  // namespace

void CombineSplits(const SparseAttentionParams& params, const AttentionPlan& plan,
                   CUstream_st* stream) {
  constexpr int kRowHeads = kWarps / kSharing;  // of a block
  const int row_heads = plan.rows * params.heads;
  const dim3 blocks(static_cast<unsigned>((row_heads + kRowHeads - 1) / kRowHeads));
  LaunchClosely(CombineKernel, {blocks, 32 * kWarps}, stream, params, plan);
  CheckLaunch("CombineSplits");
}

}  // namespace baton::kernels::cuda
