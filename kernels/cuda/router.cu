#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/router.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kMaxChosen = 8;
constexpr int kPerLane = kMaxExperts / 32;

__device__ float Score(float logit) { return sqrtf(logit > 20.0f ? logit : log1pf(expf(logit))); }

// Orders by value, then by lower expert; NaN is above everything.
__device__ uint64_t Rank(float value, int expert) {
  const uint32_t bits = value != value ? 0x7fffffffu : __float_as_uint(value);
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~expert);
}

// A warp a row; lane i has experts i, i + 32, ...
__global__ void __launch_bounds__(32 * kWarps) ChooseExperts(RouterParams params) {
  AwaitPredecessors();
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= params.logits.rows) return;
  const int experts = static_cast<int>(params.logits.cols);
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
  if (params.hash_experts.data != nullptr) {
    if (lane < k) mine = params.hash_experts.Row(params.tokens[row])[lane];
  } else {
    uint64_t ranks[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = lane + 32 * i;
      ranks[i] = expert < experts ? Rank(Score(logits[expert]) + params.bias[expert], expert) : 0;
    }
    for (int chosen = 0; chosen < k; ++chosen) {
      uint64_t best = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) best = ranks[i] > best ? ranks[i] : best;
      for (int distance = 16; distance > 0; distance /= 2) {
        const uint64_t other = __shfl_xor_sync(kFullWarp, best, distance);
        best = other > best ? other : best;
      }
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if (ranks[i] == best) ranks[i] = 0;
      }
      if (lane == chosen) mine = static_cast<int>(~static_cast<uint32_t>(best));
    }
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
  const dim3 blocks(static_cast<unsigned>((rows + kWarps - 1) / kWarps));
  LaunchClosely(ChooseExperts, {blocks, 32 * kWarps}, stream, params);
  CheckLaunch("ChooseExperts");
}

}  // namespace baton::kernels::cuda
