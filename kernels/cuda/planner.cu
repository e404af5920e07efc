#include "common/base/check.h"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/planner.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = kMaxPlannedSequences;

// Sums over all threads up to and including the calling one, of two values at once; two barriers.
__device__ int2 SumUpTo(int2 value, int2* warp_sums) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int x = __shfl_up_sync(kFullWarp, value.x, distance);
    const int y = __shfl_up_sync(kFullWarp, value.y, distance);
    if (lane >= distance) value = {value.x + x, value.y + y};
  }
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  for (int i = 0; i < warp; ++i) value = {value.x + warp_sums[i].x, value.y + warp_sums[i].y};
  __syncthreads();
  return value;
}

// One block: thread s sums up to sequence s, then warps fill the rows of one sequence after
// another.
__global__ void __launch_bounds__(kThreads) Plan(PlanBatchParams params) {
  __shared__ int2 warp_sums[kThreads / 32];
  __shared__ int begin[kThreads + 1];
  __shared__ int logits_begin[kThreads + 1];
  const int s = threadIdx.x;
  int2 counts = {0, 0};
  if (s < params.sequences) {
    counts.x = params.row_count[s];
    counts.y = min(params.logits_count[s], counts.x);
  }
  const int2 sums = SumUpTo(counts, warp_sums);
  begin[s + 1] = sums.x;
  logits_begin[s + 1] = sums.y;
  if (s == 0) begin[0] = logits_begin[0] = 0;
  __syncthreads();

  if (s < params.sequences) params.row_begin[s + 1] = begin[s + 1];
  if (s == 0) params.row_begin[0] = 0;
  for (int sequence = s / 32; sequence < params.sequences; sequence += kThreads / 32) {
    const int first = begin[sequence];
    const int rows = begin[sequence + 1] - first;
    for (int i = s % 32; i < rows; i += 32) {
      params.position[first + i] = params.start[sequence] + i;
      params.sequence[first + i] = sequence;
    }
    const int wanted = logits_begin[sequence + 1] - logits_begin[sequence];
    for (int i = s % 32; i < wanted; i += 32) {
      params.logits_row[logits_begin[sequence] + i] = first + rows - wanted + i;
    }
  }
  for (int row = begin[params.sequences] + s; row < params.rows; row += kThreads) {
    params.position[row] = 0;
    params.sequence[row] = -1;
  }
  for (int i = logits_begin[params.sequences] + s; i < params.logits_rows; i += kThreads) {
    params.logits_row[i] = -1;
  }
}

__global__ void __launch_bounds__(kThreads)
    Advance(BatchView batch, const int32_t* accepted, int32_t* next_start) {
  const int s = threadIdx.x;
  if (s >= batch.sequences) return;
  const bool any = batch.row_begin[s + 1] > batch.row_begin[s];
  next_start[s] = batch.start[s] + (any ? accepted[s] + 1 : 0);
}

}  // namespace

void PlanBatch(const PlanBatchParams& params, CUstream_st* stream) {
  BATON_CHECK(params.sequences <= kMaxPlannedSequences) << params.sequences << " sequences";
  Plan<<<1, kThreads, 0, stream>>>(params);
  CheckLaunch("Plan");
}

void AdvanceStarts(const BatchView& batch, const int32_t* accepted, int32_t* next_start,
                   CUstream_st* stream) {
  BATON_CHECK(batch.sequences <= kMaxPlannedSequences) << batch.sequences << " sequences";
  Advance<<<1, kThreads, 0, stream>>>(batch, accepted, next_start);
  CheckLaunch("Advance");
}

}  // namespace baton::kernels::cuda
