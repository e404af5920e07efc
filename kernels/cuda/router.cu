#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/router.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kRows = 4;  // of a block, a warp each
constexpr int kMaxChosen = 8;
constexpr int kPerLane = kMaxExperts / 32;

__device__ float Score(float logit) { return sqrtf(logit > 20.0f ? logit : log1pf(expf(logit))); }

// Ascending with the value, above 0; NaN is above everything.
__device__ uint32_t Rank(float value) {
  const uint32_t bits = value != value ? 0x7fffffffu : __float_as_uint(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// All threads of the block: a score takes long, and one row has nobody else to work on.
__device__ void RankExperts(const RouterParams& params, uint32_t (&ranks)[kRows][kMaxExperts]) {
  const int64_t first = int64_t{blockIdx.x} * kRows;
  for (int i = 0; i < kRows && first + i < params.logits.rows; ++i) {
    const float* logits = params.logits.Row(first + i);
    for (int expert = threadIdx.x; expert < params.logits.cols; expert += 32 * kRows) {
      ranks[i][expert] = Rank(Score(logits[expert]) + params.bias[expert]);
    }
  }
  __syncthreads();
}

// Lane i < k gets the expert with the i-th highest rank, of equal ones the lower first. Lane i
// looks at experts i, i + 32, ...
__device__ int TakeHighest(const uint32_t* ranks, int experts, int k) {
  const int lane = threadIdx.x % 32;
  uint32_t left[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    left[i] = lane + 32 * i < experts ? ranks[lane + 32 * i] : 0;
  }
  int mine = 0;
  for (int chosen = 0; chosen < k; ++chosen) {
    uint32_t best = 0;
    uint32_t holder = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (left[i] > best) {
        best = left[i];
        holder = lane + 32 * i;
      }
    }
    const uint32_t highest = __reduce_max_sync(kFullWarp, best);
    const uint32_t winner = __reduce_min_sync(kFullWarp, best == highest ? holder : kMaxExperts);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (lane + 32 * i == winner) left[i] = 0;
    }
    if (lane == chosen) mine = static_cast<int>(winner);
  }
  return mine;
}

__global__ void __launch_bounds__(32 * kRows) ChooseExperts(RouterParams params) {
  AwaitPredecessors();
  __shared__ uint32_t ranks[kRows][kMaxExperts];
  const bool hashed = params.hash_experts.data != nullptr;
  if (!hashed) RankExperts(params, ranks);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t row = int64_t{blockIdx.x} * kRows + warp;
  if (row >= params.logits.rows) return;
  const int k = static_cast<int>(params.experts.cols);
  if (params.sequence != nullptr && params.sequence[row] < 0) {
    if (lane < k) {
      params.experts.Row(row)[lane] = -1;
      params.weights.Row(row)[lane] = 0;
    }
    return;
  }

  const float* logits = params.logits.Row(row);
  int mine = 0;  // lane i < k: the i-th chosen expert
  if (!hashed) {
    mine = TakeHighest(ranks[warp], static_cast<int>(params.logits.cols), k);
  } else if (lane < k) {
    mine = params.hash_experts.Row(params.tokens[row])[lane];
  }

  // Ascending ids: lane i's expert goes where as many are lower.
  int place = 0;
  for (int i = 0; i < k; ++i) {
    const int other = __shfl_sync(kFullWarp, mine, i);
    place += other < mine || (other == mine && i < lane) ? 1 : 0;
  }
  const float score = lane < k ? Score(logits[mine]) : 0;
  float sum = 0;
  for (int wanted = 0; wanted < k; ++wanted) {  // in the order of the ids, as the reference
    const uint32_t holder = __ballot_sync(kFullWarp, lane < k && place == wanted);
    sum += __shfl_sync(kFullWarp, score, __ffs(static_cast<int>(holder)) - 1);
  }
  if (lane >= k) return;
  params.experts.Row(row)[place] = mine;
  params.weights.Row(row)[place] = score / sum * params.scale;
}

}  // namespace

void Router(const RouterParams& params, CUstream_st* stream) {
  const int64_t rows = params.logits.rows;
  const int64_t k = params.experts.cols;
  BATON_CHECK(params.logits.cols <= kMaxExperts && k <= kMaxChosen && k <= params.logits.cols)
      << "the router takes up to " << kMaxExperts << " experts and " << kMaxChosen
      << " of them a row, not " << params.logits.cols << " and " << k;
  BATON_CHECK(params.experts.rows == rows && params.weights.rows == rows &&
              params.weights.cols == k);
  BATON_CHECK(params.hash_experts.data != nullptr ? params.tokens != nullptr
                                                  : params.bias != nullptr);
  if (rows == 0) return;
  const dim3 blocks(static_cast<unsigned>((rows + kRows - 1) / kRows));
  LaunchClosely(ChooseExperts, {blocks, 32 * kRows}, stream, params);
  CheckLaunch("ChooseExperts");
}

}  // namespace baton::kernels::cuda
