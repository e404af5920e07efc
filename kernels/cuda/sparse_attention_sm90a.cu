#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/sparse_attention_gather.cuh"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/runtime/error.h"

// Attention by wgmma: a block takes one piece of work - a row, 64 heads, some tiles of 64
// candidates
// - after another. One warpgroup gathers, running ahead into the next piece; each of the two others
// computes the scores of half the candidates, they exchange maxima and probabilities, and each
// accumulates half of the output's channels over all candidates.

namespace baton::kernels::cuda {

namespace {

constexpr int kGroup = 128;
constexpr int kThreads = 3 * kGroup;
constexpr int kConsumers = 2 * kGroup;
constexpr int kHalfTile = kKvTile / 2;
constexpr float kLog2E = 1.4426950408889634f;
// Named barriers of the consumers.
constexpr int kExchangeBarrier = 1;
constexpr int kProbabilitiesBarrier = 2;

struct Shared {
  GatherShared gather;
  alignas(1024) uint8_t probabilities[kHeadTile * kKvTile * 2];
  float maxima[2][kHeadTile];  // of a group's half of a tile
  float sums[2][kHeadTile];
};

// Rows of an accumulator fragment that a thread holds: head and head + 8.
struct Pair {
  float v[2];
};

template <EntryFormat kFormat>
__device__ void Gather(const SparseAttentionParams& params, const AttentionPlan& plan,
                       Shared& shared) {
  KvGather<kFormat> gather = {params, shared.gather, static_cast<int>(threadIdx.x)};
  int queries = 0;
  for (int64_t item = blockIdx.x; item < plan.items; item += gridDim.x) {
    const RowCandidates candidates = CandidatesOf(params, RowOf(plan, item));
    const AttentionWork work = WorkOf(plan, candidates, item);
    if (work.tile >= work.tile_end) continue;
    auto location = gather.Locate(candidates, work, work.tile);
    for (int tile = work.tile; tile < work.tile_end; ++tile) {
      const auto next = gather.Locate(candidates, work, tile + 1);
      gather.Bring(candidates, tile, location);
      // Behind the first tile: that has a free stage before the last piece is done with its
      // queries.
      if (tile == work.tile) gather.CopyQueries(work, queries++);
      location = next;
    }
  }
}

// What a consumer thread keeps over the tiles: two heads (rows of the fragments), half the
// channels.
struct Accumulator {
  float o[kKvDim / 4];
  Pair maximum = {{-INFINITY, -INFINITY}};  // of scaled scores, in units of log 2
  Pair sum = {{0, 0}};                      // of the thread's own columns
};

// Scores of the group's half of a tile; channels are summed.
__device__ void Scores(const GatherShared& shared, const uint8_t* tile, int group,
                       float (&scores)[kHalfTile / 2]) {
  const uint32_t q = SharedAddress(shared.q);
  const uint32_t keys = SharedAddress(tile) + group * kHalfTile * 128;
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < kKvDim / 16; ++k) {
    const int offset = k / 4 * kKvBlockBytes + k % 4 * 32;
    Wgmma<false>(scores, ChannelsSummed(q + offset), ChannelsSummed(keys + offset), k > 0);
  }
  WgmmaCommit();
  WgmmaWait<0>();
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
    const float low = exp2f(scores[i] - maximum.v[row]);
    const float high = exp2f(scores[i + 1] - maximum.v[row]);
    sum.v[row] += low + high;
    const int column = group * kHalfTile + i / 4 * 8;
    uint8_t* target = shared.probabilities + SwizzledOffset(head + 8 * row, column / 8);
    *reinterpret_cast<uint32_t*>(target + threadIdx.x % 4 * 4) = PackBf16(low, high);
  }
}

// o += probabilities x values, over the group's channels; candidates are summed.
__device__ void AddValues(const Shared& shared, const uint8_t* tile, int group,
                          float (&o)[kKvDim / 4]) {
  const uint32_t probabilities = SharedAddress(shared.probabilities);
  const uint32_t values = SharedAddress(tile) + group * kKvBlocks / 2 * kKvBlockBytes;
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < kKvTile / 16; ++k) {
    Wgmma<true>(o, ChannelsSummed(probabilities + k * 32),
                RowsSummed(values + k * 16 * 128, kKvBlockBytes), true);
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
  Scores(shared.gather, keys, group, scores);
  if (last && threadIdx.x % 32 == 0) shared.gather.q_ring.ArriveEmpty(0);
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
    shrink.v[i] = exp2f(acc.maximum.v[i] - reference.v[i]);
    acc.sum.v[i] *= shrink.v[i];
  }
  acc.maximum = maximum;
  StoreProbabilities(shared, group, head, reference, scores, acc.sum);
  FenceForTensorCores();
#pragma unroll
  for (int i = 0; i < kKvDim / 4; ++i) acc.o[i] *= shrink.v[i / 2 % 2];
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

// Four lanes hold two channels each of four groups of eight; afterwards each holds one group.
__device__ Vector16 GatherGroup(uint32_t (&words)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int distance = 2; distance > 0; distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      const uint32_t sent = upper ? words[i] : words[i + distance];
      const uint32_t received = __shfl_xor_sync(kFullWarp, sent, distance);
      if (upper) {
        words[i] = received;
      } else {
        words[i + distance] = received;
      }
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// Results of one head: fragment row `i` of the accumulators times `factor`.
__device__ void StoreOutput(BFloat16* out, const Accumulator& acc, int i, float factor) {
#pragma unroll
  for (int block = 0; block < kKvDim / 16; block += 4) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* pair = &acc.o[4 * (block + j) + 2 * i];
      words[j] = PackBf16(pair[0] * factor, pair[1] * factor);
    }
    const Vector16 group = GatherGroup(words);
    if (out != nullptr) Store16(out + (block + threadIdx.x % 4) * 8, group);
  }
}
__device__ void StorePart(float* out, const Accumulator& acc, int i) {
#pragma unroll
  for (int j = 0; j < kKvDim / 16; ++j) {
    const float* pair = &acc.o[4 * j + 2 * i];
    *reinterpret_cast<float2*>(out + j * 8 + threadIdx.x % 4 * 2) = {pair[0], pair[1]};
  }
}

__device__ void StoreResult(const SparseAttentionParams& params, const AttentionPlan& plan,
                            Shared& shared, const AttentionWork& work, const Accumulator& acc) {
  const int first_channel = ConsumerGroup() * kKvDim / 2;
  const Pair sum = TotalSum(shared, acc.sum);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = work.head_begin + HeadOfThread() + 8 * i;
    const bool exists = head < params.heads;
    const int64_t row_head = static_cast<int64_t>(work.row) * params.heads + head;
    if (plan.splits == 1) {
      const float sink = exists ? params.sinks[head] : 0.0f;
      const float inverse = 1.0f / (sum.v[i] + exp2f(sink * kLog2E - acc.maximum.v[i]));
      StoreOutput(exists ? params.out + row_head * kKvDim + first_channel : nullptr, acc, i,
                  inverse);
      continue;
    }
    if (!exists) continue;
    const int64_t part = row_head * plan.splits + work.split;
    StorePart(plan.partial_outputs + part * kKvDim + first_channel, acc, i);
    if (ConsumerGroup() == 0 && threadIdx.x % 4 == 0) {
      plan.partial_maxima[part] = acc.maximum.v[i];
      plan.partial_sums[part] = sum.v[i];
    }
  }
}

// A split for which the row is too short.
__device__ void StoreNothing(const SparseAttentionParams& params, const AttentionPlan& plan,
                             const AttentionWork& work) {
  const int head = work.head_begin + static_cast<int>(threadIdx.x) - kGroup;
  if (plan.splits == 1 || threadIdx.x >= kGroup + kHeadTile || head >= params.heads) return;
  const int64_t part =
      (static_cast<int64_t>(work.row) * params.heads + head) * plan.splits + work.split;
  plan.partial_maxima[part] = -INFINITY;
  plan.partial_sums[part] = 0;
}

__device__ void Attend(const SparseAttentionParams& params, const AttentionPlan& plan,
                       Shared& shared) {
  int n = 0;
  int queries = 0;
  for (int64_t item = blockIdx.x; item < plan.items; item += gridDim.x) {
    const RowCandidates candidates = CandidatesOf(params, RowOf(plan, item));
    const AttentionWork work = WorkOf(plan, candidates, item);
    if (work.tile >= work.tile_end) {
      StoreNothing(params, plan, work);
      continue;
    }
    Accumulator acc;
#pragma unroll
    for (float& value : acc.o) value = 0;
    shared.gather.q_ring.WaitFull(queries++);
    for (int tile = work.tile; tile < work.tile_end; ++tile, ++n) {
      AttendTile(shared, params.scale * kLog2E, n, tile + 1 == work.tile_end, acc);
    }
    StoreResult(params, plan, shared, work, acc);
  }
}

template <EntryFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1)
    AttentionKernel(const __grid_constant__ SparseAttentionParams params,
                    const __grid_constant__ AttentionPlan plan) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  if (threadIdx.x == 0) shared.gather.Init(kConsumers / 32);
  __syncthreads();
  // The compiler grants registers by role only where each role is one branch.
  constexpr bool kConverts = kFormat != EntryFormat::kBf16;
  if (threadIdx.x < kGroup) {
    ReleaseRegisters<(kConverts ? 144 : 104)>();
    Gather<kFormat>(params, plan, shared);
  } else {
    ClaimRegisters<(kConverts ? 176 : 200)>();
    Attend(params, plan, shared);
  }
}

template <EntryFormat kFormat>
void Launch(const SparseAttentionParams& params, const AttentionPlan& plan, CUstream_st* stream) {
  const auto kernel = AttentionKernel<kFormat>;
  CheckCuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
      "cudaFuncSetAttribute");
  kernel<<<plan.blocks, kThreads, sizeof(Shared), stream>>>(params, plan);
  CheckLaunch("SparseAttention");
}

}  // namespace

void SparseAttentionSm90a(const SparseAttentionParams& params, const AttentionPlan& plan,
                          CUstream_st* stream) {
  if (params.ratio > 0 && params.pool.format == EntryFormat::kFp8Packed) {
    return Launch<EntryFormat::kFp8Packed>(params, plan, stream);
  }
  Launch<EntryFormat::kBf16>(params, plan, stream);
}

}  // namespace baton::kernels::cuda
