#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/sparse_attention_gather.cuh"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/runtime/error.h"

// Attention of one row and 64 heads by wgmma, a tile of 64 candidates at a time. One warpgroup
// gathers; each of the two others computes the scores of half the candidates, they exchange maxima
// and probabilities, and each accumulates half of the output's channels over all candidates.

namespace baton::kernels::cuda {

namespace {

constexpr int kGroup = 128;
constexpr int kThreads = 3 * kGroup;
constexpr int kConsumers = 2 * kGroup;
constexpr int kHalfTile = kKvTile / 2;
constexpr float kLog2E = 1.4426950408889634f;
// Named barriers of the consumers.
constexpr int kMaximaBarrier = 1;
constexpr int kProbabilitiesBarrier = 2;

struct Shared {
  alignas(1024) uint8_t q[kKvTileBytes];
  alignas(1024) uint8_t tiles[kKvStages][kKvTileBytes];
  alignas(1024) uint8_t probabilities[kHeadTile * kKvTile * 2];
  GatherShared gather;
  StageRing<kKvStages> ring;
  float exchange[2][kHeadTile];  // of a group: maxima of its half of a tile; in the end, sums
  int selected;
};

// Rows of an accumulator fragment that a thread holds: head and head + 8.
struct Pair {
  float v[2];
};

// The queries of 64 heads, zeros for heads that do not exist.
__device__ void LoadQ(const SparseAttentionParams& params, int row, int head_begin, uint8_t* q) {
  constexpr int kPieces = kKvDim / 8;
  for (int i = threadIdx.x; i < kHeadTile * kPieces; i += kThreads) {
    const int head = head_begin + i / kPieces;
    Vector16 value = {0, 0, 0, 0};
    if (head < params.heads) {
      value = Load16(params.q + (static_cast<int64_t>(row) * params.heads + head) * kKvDim +
                     i % kPieces * 8);
    }
    Store16(q + KvOffset(i / kPieces, i % kPieces), value);
  }
}

// How many leading elements of the row's selection are not -1.
__device__ void CountSelected(const SparseAttentionParams& params, int row, int* count) {
  if (params.selected == nullptr) return;
  const int32_t* selected = params.selected + static_cast<int64_t>(row) * params.k;
  if (threadIdx.x == 0) *count = params.k;
  __syncthreads();
  for (int i = threadIdx.x; i < params.k; i += kThreads) {
    if (selected[i] < 0) atomicMin(count, i);
  }
}

template <EntryFormat kFormat>
__device__ void Gather(const SparseAttentionParams& params, const RowCandidates& candidates,
                       Shared& shared, int tile_begin, int tile_end) {
  KvGather<kFormat> gather = {params, candidates, shared.gather, static_cast<int>(threadIdx.x)};
  for (int tile = tile_begin, n = 0; tile < tile_end; ++tile, ++n) {
    gather.Locate(tile, n);
    uint8_t* target = shared.tiles[n % kKvStages];
    if (kFormat == EntryFormat::kBf16 || candidates.IsWindowTile(tile)) {
      shared.ring.WaitEmpty(n);
      gather.CopyRows(n, target, &shared.ring.full[n % kKvStages]);
      continue;
    }
    if constexpr (kFormat != EntryFormat::kBf16) {
      typename KvGather<kFormat>::Records records;
      gather.LoadRecords(n, records);
      shared.ring.WaitEmpty(n);
      gather.StoreRecords(n, records, target);
      shared.ring.ArriveFull(n);
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
__device__ void Scores(const Shared& shared, const uint8_t* tile, int group,
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

// Scales and masks, and returns the largest of the thread's four lanes.
__device__ Pair ScaleAndMask(const RowCandidates& candidates, int first_slot, float scale,
                             float (&scores)[kHalfTile / 2]) {
  Pair largest = {{-INFINITY, -INFINITY}};
#pragma unroll
  for (int i = 0; i < kHalfTile / 2; ++i) {
    const int slot = first_slot + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    float& score = scores[i];
    score = candidates.Exists(slot) ? score * scale : -INFINITY;
    largest.v[i / 2 % 2] = fmaxf(largest.v[i / 2 % 2], score);
  }
  for (float& value : largest.v) value = LaneMax<4>(value);
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

__device__ void AttendTile(const SparseAttentionParams& params, const RowCandidates& candidates,
                           Shared& shared, int tile, int n, Accumulator& acc) {
  const int group = threadIdx.x / kGroup - 1;
  const int head = threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
  const uint8_t* keys = shared.tiles[n % kKvStages];
  float scores[kHalfTile / 2];
  shared.ring.WaitFull(n);
  FenceForTensorCores();
  Scores(shared, keys, group, scores);
  Pair maximum =
      ScaleAndMask(candidates, tile * kKvTile + group * kHalfTile, params.scale * kLog2E, scores);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x % 4 == 0) shared.exchange[group][head + 8 * i] = maximum.v[i];
  }
  SyncThreads(kMaximaBarrier, kConsumers);
  Pair shrink;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    maximum.v[i] = fmaxf(maximum.v[i], shared.exchange[1 - group][head + 8 * i]);
    maximum.v[i] = fmaxf(maximum.v[i], acc.maximum.v[i]);
    shrink.v[i] = exp2f(acc.maximum.v[i] - maximum.v[i]);
    acc.sum.v[i] *= shrink.v[i];
  }
  acc.maximum = maximum;
  StoreProbabilities(shared, group, head, maximum, scores, acc.sum);
  FenceForTensorCores();
#pragma unroll
  for (int i = 0; i < kKvDim / 4; ++i) acc.o[i] *= shrink.v[i / 2 % 2];
  SyncThreads(kProbabilitiesBarrier, kConsumers);
  AddValues(shared, keys, group, acc.o);
  if (threadIdx.x % 32 == 0) shared.ring.ArriveEmpty(n);
}

// The sums of both groups.
__device__ Pair TotalSum(Shared& shared, const Pair& own) {
  const int group = threadIdx.x / kGroup - 1;
  const int head = threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
  Pair total;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    total.v[i] = LaneSum<4>(own.v[i]);
    if (threadIdx.x % 4 == 0) shared.exchange[group][head + 8 * i] = total.v[i];
  }
  SyncThreads(kMaximaBarrier, kConsumers);
#pragma unroll
  for (int i = 0; i < 2; ++i) total.v[i] += shared.exchange[1 - group][head + 8 * i];
  return total;
}

__device__ void StoreResult(const SparseAttentionParams& params, const AttentionPlan& plan,
                            Shared& shared, int row, int head_begin, const Accumulator& acc) {
  const int group = threadIdx.x / kGroup - 1;
  const int channel = group * kKvDim / 2 + threadIdx.x % 4 * 2;
  const Pair sum = TotalSum(shared, acc.sum);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = head_begin + threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i;
    if (head >= params.heads) continue;
    const int64_t row_head = static_cast<int64_t>(row) * params.heads + head;
    if (plan.splits == 1) {
      const float inverse =
          1.0f / (sum.v[i] + exp2f(params.sinks[head] * kLog2E - acc.maximum.v[i]));
      auto* out = reinterpret_cast<uint32_t*>(params.out + row_head * kKvDim + channel);
#pragma unroll
      for (int j = 0; j < kKvDim / 16; ++j) {
        out[4 * j] = PackBf16(acc.o[4 * j + 2 * i] * inverse, acc.o[4 * j + 2 * i + 1] * inverse);
      }
      continue;
    }
    const int64_t part = row_head * plan.splits + blockIdx.y;
    auto* out = reinterpret_cast<float2*>(plan.partial_outputs + part * kKvDim + channel);
#pragma unroll
    for (int j = 0; j < kKvDim / 16; ++j) {
      out[4 * j] = {acc.o[4 * j + 2 * i], acc.o[4 * j + 2 * i + 1]};
    }
    if (group == 0 && threadIdx.x % 4 == 0) {
      plan.partial_maxima[part] = acc.maximum.v[i];
      plan.partial_sums[part] = sum.v[i];
    }
  }
}

template <EntryFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1)
    AttentionKernel(const __grid_constant__ SparseAttentionParams params,
                    const __grid_constant__ AttentionPlan plan) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  const int row = blockIdx.x / plan.head_tiles;
  const int head_begin = blockIdx.x % plan.head_tiles * kHeadTile;
  if (params.batch.sequence[row] < 0) return;
  if (threadIdx.x == 0) shared.ring.Init(kGatherThreads, kConsumers / 32);
  CountSelected(params, row, &shared.selected);
  LoadQ(params, row, head_begin, shared.q);
  FenceForTensorCores();
  __syncthreads();
  const RowCandidates candidates =
      CandidatesOf(params, row, params.selected != nullptr ? shared.selected : 0);
  const int tiles = candidates.EndTile() - candidates.FirstTile();
  const int tiles_of_split = (tiles + plan.splits - 1) / plan.splits;
  const int tile_begin = candidates.FirstTile() + blockIdx.y * tiles_of_split;
  const int tile_end = min(tile_begin + tiles_of_split, candidates.EndTile());

  constexpr bool kConverts = kFormat != EntryFormat::kBf16;
  if (threadIdx.x < kGroup) {
    ReleaseRegisters<(kConverts ? 128 : 56)>();
    Gather<kFormat>(params, candidates, shared, tile_begin, tile_end);
  } else {
    ClaimRegisters<(kConverts ? 184 : 224)>();
    Accumulator acc;
#pragma unroll
    for (float& value : acc.o) value = 0;
    for (int tile = tile_begin; tile < tile_end; ++tile) {
      AttendTile(params, candidates, shared, tile, tile - tile_begin, acc);
    }
    StoreResult(params, plan, shared, row, head_begin, acc);
  }
}

template <EntryFormat kFormat>
void Launch(const SparseAttentionParams& params, const AttentionPlan& plan, CUstream_st* stream) {
  const auto kernel = AttentionKernel<kFormat>;
  CheckCuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
      "cudaFuncSetAttribute");
  const dim3 grid(static_cast<unsigned>(params.batch.rows * plan.head_tiles),
                  static_cast<unsigned>(plan.splits));
  kernel<<<grid, kThreads, sizeof(Shared), stream>>>(params, plan);
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
