#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/permute.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kAssignThreads = 512;
constexpr int kAssignWarps = kAssignThreads / 32;
constexpr int kCombineThreads = 128;

// Sum of `value` over the threads before this one; `total` over all. Two barriers.
__device__ int SumBefore(int value, int* warp_sums, int& total) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kFullWarp, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int i = 0; i < kAssignWarps; ++i) {
    if (i < warp) before += warp_sums[i];
    total += warp_sums[i];
  }
  __syncthreads();
  return before + sum - value;
}

// The expert as the bank counts, or -1.
__device__ int Local(int expert, const AssignSlotsParams& params) {
  const int local = expert - params.first_expert;
  return local >= 0 && local < params.expert_count ? local : -1;
}

// Block e makes the slots of expert e: it counts the entries of lower experts, then walks through
// its own. Every block reads all entries twice, from L2, and none waits for another.
__global__ void __launch_bounds__(kAssignThreads) AssignToExpert(AssignSlotsParams params) {
  AwaitPredecessors();
  __shared__ int warp_sums[kAssignWarps];
  const int expert = blockIdx.x;
  const int32_t* experts = params.experts.data;
  const int k = static_cast<int>(params.experts.cols);
  const int entries = static_cast<int>(params.experts.rows) * k;

  int lower = 0;
  for (int i = threadIdx.x; i < entries; i += kAssignThreads) {
    const int other = Local(experts[i], params);
    lower += other >= 0 && other < expert ? 1 : 0;
  }
  int next = 0;
  SumBefore(lower, warp_sums, next);
  if (threadIdx.x == 0) params.begin[expert] = next;

  constexpr int kEach = 4;  // neighbouring entries a thread: fewer barriers
  for (int first = 0; first < entries; first += kEach * kAssignThreads) {
    const int mine = first + kEach * static_cast<int>(threadIdx.x);
    int wanted[kEach];
    int count = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      wanted[i] = mine + i < entries ? Local(experts[mine + i], params) : expert + 1;
      count += wanted[i] == expert ? 1 : 0;
    }
    int found = 0;
    int slot = next + SumBefore(count, warp_sums, found);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int entry = mine + i;
      if (wanted[i] == expert) {
        params.row[slot] = entry / k;
        params.weight[slot] = params.weights[entry];
        params.slot[entry] = slot++;
      }
      if (wanted[i] < 0 && expert == 0) params.slot[entry] = -1;
    }
    next += found;
  }
  if (expert == params.expert_count - 1 && threadIdx.x == 0) params.begin[expert + 1] = next;
}

__global__ void __launch_bounds__(kCombineThreads) SumExperts(CombineExpertsParams params) {
  AwaitPredecessors();
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * kCombineThreads + threadIdx.x) * 8;
  if (col >= params.out.cols) return;
  const int k = static_cast<int>(params.slot.cols);
  float sum[8] = {};
  for (int i = 0; i < k; ++i) {
    const int slot = params.slot.Row(row)[i];
    if (slot >= 0) AddBf16(LoadStreaming16(params.y.Row(slot) + col), sum);
  }
  AddBf16(Load16(params.shared.Row(row) + col), sum);
  Store16(params.out.Row(row) + col,
          make_uint4(PackBf16(sum[0], sum[1]), PackBf16(sum[2], sum[3]), PackBf16(sum[4], sum[5]),
                     PackBf16(sum[6], sum[7])));
}

}  // namespace

void AssignSlots(const AssignSlotsParams& params, CUstream_st* stream) {
  BATON_CHECK(params.expert_count > 0 && params.expert_count <= kMaxExperts)
      << params.expert_count << " experts";
  BATON_CHECK(params.experts.stride == params.experts.cols &&
              params.experts.rows * params.experts.cols <= INT32_MAX)
      << params.experts.rows << " rows";
  LaunchClosely(AssignToExpert, {dim3(params.expert_count), kAssignThreads}, stream, params);
  CheckLaunch("AssignToExpert");
}

void CombineExperts(const CombineExpertsParams& params, CUstream_st* stream) {
  const int64_t rows = params.out.rows;
  const int64_t cols = params.out.cols;
  BATON_CHECK(params.slot.rows == rows && params.shared.rows == rows &&
              params.shared.cols == cols && params.y.cols == cols && cols % 8 == 0 &&
              params.y.stride % 8 == 0 && params.shared.stride % 8 == 0 &&
              params.out.stride % 8 == 0)
      << "out [" << rows << ", " << cols << "], y " << params.y.cols << ", shared ["
      << params.shared.rows << ", " << params.shared.cols << "]";
  if (rows == 0) return;
  constexpr int kColumns = 8 * kCombineThreads;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((cols + kColumns - 1) / kColumns));
  LaunchClosely(SumExperts, {grid, kCombineThreads}, stream, params);
  CheckLaunch("SumExperts");
}

}  // namespace baton::kernels::cuda
