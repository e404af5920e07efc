#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/sparse_attention_fragments.cuh"
#include "kernels/cuda/sparse_attention_gather.cuh"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/runtime/error.h"

// Attention by wgmma: a block takes one piece of work - a row, 64 heads, some tiles of 64
// candidates
// - after another. One warpgroup gathers, running ahead into the next piece. Each of the two others
// multiplies half of the channels of queries and candidates, turns half of the summed scores into
// probabilities, and accumulates half of the output's channels over all candidates.

namespace baton::kernels::cuda {

namespace {

constexpr int kGroup = 128;
constexpr int kThreads = 3 * kGroup;
constexpr int kConsumers = 2 * kGroup;
constexpr int kHalfTile = kKvTile / 2;
// Named barriers of the consumers.
constexpr int kExchangeBarrier = 1;
constexpr int kProbabilitiesBarrier = 2;
constexpr int kScoresBarrier = 4;

struct Shared {
  GatherShared gather;
  alignas(1024) uint8_t probabilities[kHeadTile * kKvTile * 2];
  float4 partial_scores[2][kHalfTile / 8][kGroup];  // a group's share of the other group's scores
  float maxima[2][kHeadTile];                       // of a group's half of a tile
  float sums[2][kHeadTile];
};

template <EntryFormat kFormat>
__device__ void Gather(const SparseAttentionParams& params, const AttentionPlan& plan,
                       Shared& shared) {
  KvGather<kFormat> gather = {params, shared.gather, static_cast<int>(threadIdx.x)};
  for (int64_t item = blockIdx.x; item < plan.items; item += gridDim.x) {
    const RowCandidates candidates = CandidatesOf(params, RowOf(plan, item));
    const AttentionWork work = WorkOf(plan, candidates, item);
    if (work.tile >= work.tile_end) {
      StoreNothing(params, plan, work);
      continue;
    }
    auto location = gather.Locate(candidates, work, work.tile);
    for (int tile = work.tile; tile < work.tile_end; ++tile) {
      const auto next = gather.Locate(candidates, work, tile + 1);
      gather.Bring(candidates, tile, location);
      // Behind the first tile: that has a free stage before the last piece is done with its
      // queries.
      if (tile == work.tile) gather.CopyQueries(work);
      location = next;
    }
  }
  gather.AnnounceEnd();
}

// What a consumer thread keeps over the tiles: two heads (rows of the fragments), half the
// channels.
struct Accumulator {
  float o[kKvDim / 4];
  Pair maximum = {{-INFINITY, -INFINITY}};  // of scaled scores, in units of log 2
  Pair sum = {{0, 0}};                      // of the thread's own columns
};

// Scores of the group's half of a tile. Products with 32 candidates are slow, so each group
// multiplies half the channels with all 64 and hands over the sums that the other one needs.
__device__ void Scores(Shared& shared, const uint8_t* tile, int group,
                       float (&scores)[kHalfTile / 2]) {
  const int half = group * kKvBlocks / 2 * kKvBlockBytes;
  const uint64_t q = ChannelsSummed(UniformSharedAddress(shared.gather.q + half));
  const uint64_t keys = ChannelsSummed(UniformSharedAddress(tile + half));
  float sums[kKvTile / 2];
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < kKvDim / 32; ++k) {
    const int offset = k / 4 * kKvBlockBytes + k % 4 * 32;
    Wgmma<false>(sums, Advanced(q, offset), Advanced(keys, offset), k > 0);
  }
  WgmmaCommit();
  WgmmaWait<0>();
  const int thread = threadIdx.x % kGroup;
  const auto of_half = [&](int which, int i) {
    return which == 0 ? sums[i] : sums[i + kHalfTile / 2];
  };
#pragma unroll
  for (int i = 0; i < kHalfTile / 2; i += 4) {
    shared.partial_scores[1 - group][i / 4][thread] = {
        of_half(1 - group, i), of_half(1 - group, i + 1), of_half(1 - group, i + 2),
        of_half(1 - group, i + 3)};
  }
  SyncThreads(kScoresBarrier, kConsumers);
#pragma unroll
  for (int i = 0; i < kHalfTile / 2; i += 4) {
    const float4 other = shared.partial_scores[group][i / 4][thread];
    scores[i] = of_half(group, i) + other.x;
    scores[i + 1] = of_half(group, i + 1) + other.y;
    scores[i + 2] = of_half(group, i + 2) + other.z;
    scores[i + 3] = of_half(group, i + 3) + other.w;
  }
}

// Scales scores, -infinity for rows that are no candidates, and returns the largest of four lanes.
__device__ Pair ScaleAndMask(uint32_t exists, float scale, float (&scores)[kHalfTile / 2]) {
  Pair largest = {{-INFINITY, -INFINITY}};
#pragma unroll
  for (int i = 0; i < kHalfTile / 2; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    float& score = scores[i];
    score = (exists >> column & 1) != 0 ? score * scale : -INFINITY;
    largest.v[i / 2 % 2] = fmaxf(largest.v[i / 2 % 2], score);
  }
#pragma unroll
  for (float& value : largest.v) {
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, 1));
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, 2));
  }
  return largest;
}

// Scores become probabilities relative to the maximum, rounded to BF16 in shared memory.
__device__ void StoreProbabilities(Shared& shared, int group, int head, const Pair& maximum,
                                   float (&scores)[kHalfTile / 2], Pair& sum) {
#pragma unroll
  for (int i = 0; i < kHalfTile / 2; i += 2) {
    const int row = i / 2 % 2;
    const float low = Exp2(scores[i] - maximum.v[row]);
    const float high = Exp2(scores[i + 1] - maximum.v[row]);
    sum.v[row] += low + high;
    const int column = group * kHalfTile + i / 4 * 8;
    uint8_t* target = shared.probabilities + SwizzledOffset(head + 8 * row, column / 8);
    *reinterpret_cast<uint32_t*>(target + threadIdx.x % 4 * 4) = PackBf16(low, high);
  }
}

// o += probabilities x values, over the group's channels; candidates are summed.
__device__ void AddValues(const Shared& shared, const uint8_t* tile, int group,
                          float (&o)[kKvDim / 4]) {
  const uint64_t probabilities = ChannelsSummed(UniformSharedAddress(shared.probabilities));
  const uint64_t values =
      RowsSummed(UniformSharedAddress(tile + group * kKvBlocks / 2 * kKvBlockBytes), kKvBlockBytes);
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < kKvTile / 16; ++k) {
    Wgmma<true>(o, Advanced(probabilities, k * 32), Advanced(values, k * 16 * 128), true);
  }
  WgmmaCommit();
  WgmmaWait<0>();
}

__device__ int ConsumerGroup() { return threadIdx.x / kGroup - 1; }
// Of the fragments' first row; the other is 8 further on.
__device__ int HeadOfThread() { return threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4; }

// Use n of the ring; `last` of a piece: its queries may be overwritten.
__device__ void AttendTile(Shared& shared, float scale, int n, bool last, Accumulator& acc) {
  const int group = ConsumerGroup();
  const int head = HeadOfThread();
  const uint8_t* keys = shared.gather.tiles[n % kKvStages];
  float scores[kHalfTile / 2];
  shared.gather.ring.WaitFull(n);
  FenceForTensorCores();
  Scores(shared, keys, group, scores);
  if (last) shared.gather.q_ring.ArriveEmpty(0);
  Pair maximum = ScaleAndMask(shared.gather.exists[n % kKvStages][group], scale, scores);
  if (threadIdx.x % 4 == 0) {
    shared.maxima[group][head] = maximum.v[0];
    shared.maxima[group][head + 8] = maximum.v[1];
  }
  SyncThreads(kExchangeBarrier, kConsumers);
  Pair reference;  // of the exponents; finite even if nothing was a candidate so far
  Pair shrink;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    maximum.v[i] = fmaxf(maximum.v[i], shared.maxima[1 - group][head + 8 * i]);
    maximum.v[i] = fmaxf(maximum.v[i], acc.maximum.v[i]);
    reference.v[i] = maximum.v[i] == -INFINITY ? 0.0f : maximum.v[i];
    shrink.v[i] = Exp2(acc.maximum.v[i] - reference.v[i]);
    acc.sum.v[i] *= shrink.v[i];
  }
  acc.maximum = maximum;
  StoreProbabilities(shared, group, head, reference, scores, acc.sum);
  FenceForTensorCores();
  // Maxima of later tiles are rarely new.
  if (__any_sync(kFullWarp, shrink.v[0] != 1.0f || shrink.v[1] != 1.0f)) {
#pragma unroll
    for (int i = 0; i < kKvDim / 4; ++i) acc.o[i] *= shrink.v[i / 2 % 2];
  }
  SyncThreads(kProbabilitiesBarrier, kConsumers);
  AddValues(shared, keys, group, acc.o);
  if (threadIdx.x % 32 == 0) shared.gather.ring.ArriveEmpty(n);
}

// The sums of both groups.
__device__ Pair TotalSum(Shared& shared, const Pair& own) {
  const int group = ConsumerGroup();
  const int head = HeadOfThread();
  Pair total;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    total.v[i] = LaneSum<4>(own.v[i]);
    if (threadIdx.x % 4 == 0) shared.sums[group][head + 8 * i] = total.v[i];
  }
  SyncThreads(kExchangeBarrier, kConsumers);
#pragma unroll
  for (int i = 0; i < 2; ++i) total.v[i] += shared.sums[1 - group][head + 8 * i];
  return total;
}

__device__ void Attend(const SparseAttentionParams& params, const AttentionPlan& plan,
                       Shared& shared) {
  int n = 0;
  for (int queries = 0;; ++queries) {
    shared.gather.q_ring.WaitFull(queries);
    const AttentionWork work = shared.gather.work;
    if (work.tile == work.tile_end) return;
    Accumulator acc;
#pragma unroll
    for (float& value : acc.o) value = 0;
    // They are overwritten together with the queries.
    const Pair sinks = {{shared.gather.sinks[HeadOfThread()] * kLog2E,
                         shared.gather.sinks[HeadOfThread() + 8] * kLog2E}};
    for (int tile = work.tile; tile < work.tile_end; ++tile, ++n) {
      AttendTile(shared, params.scale * kLog2E, n, tile + 1 == work.tile_end, acc);
    }
    const Pair factor =
        FinishSoftmax(params, plan, work, HeadOfThread(),
                      {.maximum = acc.maximum, .sum = TotalSum(shared, acc.sum), .sinks = sinks},
                      /*reports=*/ConsumerGroup() == 0);
    StoreHeads(params, plan, work, HeadOfThread(), ConsumerGroup() * kKvDim / 2, factor, acc.o);
  }
}

template <EntryFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1)
    AttentionKernel(const __grid_constant__ SparseAttentionParams params,
                    const __grid_constant__ AttentionPlan plan) {
  AwaitPredecessors();
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  if (threadIdx.x == 0) shared.gather.Init(kConsumers);
  __syncthreads();
  // The compiler grants registers by role only where each role is one branch.
  constexpr bool kConverts = kFormat != EntryFormat::kBf16;
  if (threadIdx.x < kGroup) {
    ReleaseRegisters<(kConverts ? 120 : 104)>();
    Gather<kFormat>(params, plan, shared);
  } else {
    ClaimRegisters<(kConverts ? 192 : 200)>();
    Attend(params, plan, shared);
  }
}

template <EntryFormat kFormat>
void Launch(const SparseAttentionParams& params, const AttentionPlan& plan, CUstream_st* stream) {
  const auto kernel = AttentionKernel<kFormat>;
  CheckCuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
      "cudaFuncSetAttribute");
  LaunchClosely(kernel, {dim3(plan.blocks), kThreads, sizeof(Shared)}, stream, params, plan);
  CheckLaunch("SparseAttention");
}

}  // namespace

void LaunchAttentionSm90a(const SparseAttentionParams& params, const AttentionPlan& plan,
                          CUstream_st* stream) {
  if (params.ratio > 0 && params.pool.format == EntryFormat::kFp8Packed) {
    return Launch<EntryFormat::kFp8Packed>(params, plan, stream);
  }
  Launch<EntryFormat::kBf16>(params, plan, stream);
}

}  // namespace baton::kernels::cuda
