#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/sparse_attention_fragments.cuh"
#include "kernels/cuda/sparse_attention_gather.cuh"
#include "kernels/cuda/sparse_attention_launch.cuh"
#include "kernels/cuda/sparse_attention_plan.h"

// Attention by wgmma: a block takes one piece of work - a row, 64 heads, some tiles of 64
// candidates - after another. One warpgroup gathers, running ahead into the next piece. Two others
// attend: each accumulates half of the output's channels over all tiles, and of every pair of tiles
// group 0 turns the first into probabilities, group 1 the second. So one group's exponentials run
// while the tensor cores work for the other. In the order of time, S scores, P probabilities and V
// values:
//
//   group 0   S0  P0  V0 ..... V1  S0 ...
//   group 1      S1  V0  P1  V1 ..... S1 ...
//
// Group 0 starts the first scores of a piece before it stores the results of the one before.

namespace baton::kernels::cuda {

namespace {

constexpr int kGroup = 128;
constexpr int kThreads = 3 * kGroup;
constexpr int kConsumers = 2 * kGroup;
constexpr int kGivenBarrier = 1;  // named, + group: it has given its probabilities
// How far, in units of log 2, scores may exceed the maximum that exponents refer to: moving it
// means to scale all accumulators, and probabilities of 2^8 round like those below 1.
constexpr float kSlack = 8;
constexpr int kStoredChannels = 32;  // at a time

struct Shared {
  GatherShared gather;
  alignas(1024) uint8_t probabilities[kPair][kHeadTile * kKvTile * 2];
  alignas(16) uint8_t outputs[kConsumers / 32][16 * kStoredChannels * 2];  // of a warp
  float4 softmax[kGroup];  // maxima and sums behind the newest tile, of a thread of each group
};

template <EntryFormat kFormat>
__device__ void Gather(const SparseAttentionParams& params, const AttentionPlan& plan,
                       Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x % kGroup);
  KvGather<kFormat> gather = {params, shared.gather, thread / 32, thread % 32};
  for (int64_t item = blockIdx.x; item < plan.items; item += gridDim.x) {
    const RowCandidates candidates = CandidatesOf(params, RowOf(plan, item));
    const AttentionWork work = WorkOf(plan, candidates, item);
    if (work.tile >= work.tile_end) continue;
    gather.CopyQueries(work);
    gather.BringTiles(candidates, work);
  }
  gather.AnnounceEnd();
}

// Products in flight need branches of which the compiler sees that they are those of whole warps.
__device__ int Uniform(int value) { return __shfl_sync(kFullWarp, value, 0); }

__device__ int HeadOfThread() { return threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4; }

// Exponents stay finite even if nothing was a candidate so far.
__device__ float Reference(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// Scores, -infinity for rows that are no candidates, become probabilities relative to the running
// maximum. Returns maxima and sums behind this tile.
__device__ Softmax Exponentiate(uint64_t exists, float scale, const Softmax& before,
                                float (&scores)[kKvTile / 2]) {
  if (exists != ~uint64_t{0}) {
    exists >>= threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kKvTile / 2; ++i) {
      if ((exists >> (i / 4 * 8 + i % 2) & 1) == 0) scores[i] = -INFINITY;
    }
  }
  Softmax after = before;
  Pair reference;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 2 * row; i < kKvTile / 2; i += 4) {
      largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2)) * scale;
    if (largest > before.maximum.v[row] + kSlack) after.maximum.v[row] = largest;
    reference.v[row] = Reference(after.maximum.v[row]);
    after.sum.v[row] *= Exp2(before.maximum.v[row] - reference.v[row]);
  }
#pragma unroll
  for (int i = 0; i < kKvTile / 2; ++i) {
    const int row = i / 2 % 2;
    scores[i] = Exp2(fmaf(scores[i], scale, -reference.v[row]));
    after.sum.v[row] += scores[i];
  }
  return after;
}

// A consumer thread: two heads (rows of the fragments) and its group's half of the channels.
template <int kSelf>
struct Consumer {
  static constexpr int kOther = 1 - kSelf;

  const SparseAttentionParams& params;
  Shared& shared;
  int pieces = 0;             // of work, so far
  int own = 0;                // tiles whose scores the group has used, so far
  float scores[kKvTile / 2];  // of the group's own tile
  float o[kKvDim / 4];
  Softmax softmax;  // of the tiles in `o`; sums of the thread's own columns

  __device__ void Begin(const AttentionWork& work) {
#pragma unroll
    for (float& value : o) value = 0;
    softmax = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = work.head_begin + HeadOfThread() + 8 * i;
      if (head < params.heads) softmax.sinks.v[i] = params.sinks[head] * kLog2E;
    }
  }

  // The next piece of work, whose queries are there.
  __device__ AttentionWork NextWork() {
    shared.gather.q_ring.WaitFull(pieces++);
    FenceForTensorCores();
    return shared.gather.work;
  }

  // The two tiles of a pair or, unless `second`, one; `last` of the piece of work. Group 0 begins
  // and, unless it is the last, ends with scores of its own tile.
  __device__ void AttendPair(bool second, bool last) {
    if constexpr (kSelf == 0) {
      if (last) ReleaseQueries();
      AddOwn();
      ++own;
      if (!second) return;
      Take();
      if (last) {
        WgmmaWait<0>();
        Release(kOther);
      } else {
        MultiplyHalf(0);
        WgmmaWait<1>();
        Release(kOther);
        MultiplyHalf(1);
        WgmmaWait<0>();
      }
    } else if (second) {
      Multiply();
      Take();
      WgmmaWait<1>();
      if (last) ReleaseQueries();
      AddOwn();
      ++own;
    } else {
      if (last) ReleaseQueries();
      Take();
      WgmmaWait<0>();
      Release(kOther);
    }
  }

  // Starts the products of the queries and the next tile of the group's own: scores.
  __device__ void Multiply() {
    MultiplyHalf(0);
    MultiplyHalf(1);
  }

 private:
  // Over half of the channels: the group's own first.
  __device__ void MultiplyHalf(int which) {
    const int half = which ^ kSelf;
    const uint64_t q = ChannelsSummed(UniformSharedAddress(shared.gather.q + half * kKvHalfBytes));
    const uint64_t keys =
        ChannelsSummed(UniformSharedAddress(shared.gather.tiles[kSelf] + half * kKvHalfBytes));
    shared.gather.rings[kSelf].WaitFull(2 * own + half);
    FenceForTensorCores();
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kKvDim / 32; ++k) {
      const int offset = k / 4 * kKvBlockBytes + k % 4 * 32;
      Wgmma<false>(scores, Advanced(q, offset), Advanced(keys, offset), which + k > 0);
    }
    WgmmaCommit();
  }

  // The group's own tile, whose scores are there: probabilities for the other group, and o +=
  // probabilities x values.
  __device__ void AddOwn() {
    const Softmax after =
        Exponentiate(shared.gather.Exists(kSelf), params.scale * kLog2E, softmax, scores);
    uint32_t words[kKvTile / 4];
#pragma unroll
    for (int i = 0; i < kKvTile / 4; ++i) words[i] = PackBf16(scores[2 * i], scores[2 * i + 1]);
    Give(after, words);
    if constexpr (kSelf == 1) {
      WgmmaWait<0>();
      Release(kOther);
    }
    Follow(after);
    const uint64_t values = Values(kSelf);
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kKvTile / 16; ++k) {
      const uint32_t a[4] = {words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3]};
      Wgmma<true>(o, a, Advanced(values, k * 16 * 128), true);
    }
    WgmmaCommit();
    WgmmaWait<0>();
    Release(kSelf);
  }
  __device__ void Give(const Softmax& after, const uint32_t (&words)[kKvTile / 4]) {
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x % kGroup / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < kKvTile / 16; ++k) {
      const uint8_t* target = shared.probabilities[kSelf] + SwizzledOffset(row, 2 * k + lane / 16);
      StoreMatrices(SharedAddress(target), words[4 * k], words[4 * k + 1], words[4 * k + 2],
                    words[4 * k + 3]);
    }
    shared.softmax[threadIdx.x % kGroup] = {after.maximum.v[0], after.maximum.v[1], after.sum.v[0],
                                            after.sum.v[1]};
    ArriveThreads(kGivenBarrier + kSelf, kConsumers);
  }

  // Starts o += probabilities x values for the other group's tile.
  __device__ void Take() {
    SyncThreads(kGivenBarrier + kOther, kConsumers);
    const float4 given = shared.softmax[threadIdx.x % kGroup];
    Follow({.maximum = {{given.x, given.y}}, .sum = {{given.z, given.w}}, .sinks = softmax.sinks});
    const uint64_t probabilities =
        ChannelsSummed(UniformSharedAddress(shared.probabilities[kOther]));
    const uint64_t values = Values(kOther);
    FenceForTensorCores();
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kKvTile / 16; ++k) {
      Wgmma<true>(o, Advanced(probabilities, k * 32), Advanced(values, k * 16 * 128), true);
    }
    WgmmaCommit();
  }

  // `o` is taken to the maximum of `after`, which rarely moved.
  __device__ void Follow(const Softmax& after) {
    Pair shrink;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      shrink.v[i] = Exp2(softmax.maximum.v[i] - Reference(after.maximum.v[i]));
    }
    if (__any_sync(kFullWarp, shrink.v[0] != 1.0f || shrink.v[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < kKvDim / 4; ++i) o[i] *= shrink.v[i / 2 % 2];
    }
    softmax = after;
  }

  __device__ uint64_t Values(int buffer) const {
    return RowsSummed(UniformSharedAddress(shared.gather.tiles[buffer] + kSelf * kKvHalfBytes),
                      kKvBlockBytes);
  }

  // The group's half of a tile may be overwritten: the other group's scores were there before its
  // probabilities.
  __device__ void Release(int buffer) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.gather.rings[buffer].ArriveEmpty(kSelf);
  }
  // By every thread that read what work it is: racecheck follows a barrier only for those.
  __device__ void ReleaseQueries() { shared.gather.q_ring.ArriveEmpty(0); }
};

// Stores the results of the warp's 16 heads, which are the accumulators times `factor`, to `out`,
// that of the group's first head and channel. Through shared memory, so that rows of 64 bytes leave
// together: the exchange costs less than one by shuffles.
__device__ void StoreOutputs(BFloat16* out, int heads, uint8_t* staged, const Pair& factor,
                             const float (&o)[kKvDim / 4]) {
  constexpr int kPieces = kStoredChannels / 8;
  const auto offset = [](int row, int piece) {
    return (row * kPieces + (piece ^ (row / 2 % kPieces))) * 16;
  };
  const int lane = threadIdx.x % 32;
  const int first_head = threadIdx.x % kGroup / 32 * 16;
  out += first_head * kKvDim;
#pragma unroll
  for (int channel = 0; channel < kKvDim / 2; channel += kStoredChannels) {
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kPieces; k += 2) {
      const float* values = &o[channel / 2 + 4 * k];
      StoreMatrices(SharedAddress(staged + offset(lane % 16, k + lane / 16)),
                    PackBf16(values[0] * factor.v[0], values[1] * factor.v[0]),
                    PackBf16(values[2] * factor.v[1], values[3] * factor.v[1]),
                    PackBf16(values[4] * factor.v[0], values[5] * factor.v[0]),
                    PackBf16(values[6] * factor.v[1], values[7] * factor.v[1]));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * kPieces; i += 32) {
      const int row = (i + lane) / kPieces;
      const int piece = lane % kPieces;
      if (first_head + row >= heads) continue;
      Store16(out + row * kKvDim + channel + piece * 8, Load16(staged + offset(row, piece)));
    }
  }
}

template <int kSelf>
__device__ void Attend(const SparseAttentionParams& params, const AttentionPlan& plan,
                       Shared& shared) {
  uint8_t* staged = shared.outputs[threadIdx.x / 32 - kGroup / 32];
  constexpr int kFirstChannel = kSelf * kKvDim / 2;
  Consumer<kSelf> consumer = {params, shared};
  BFloat16* out = nullptr;  // of the results still to be stored, if any
  Pair factor;
  const auto store = [&] {
    if (out != nullptr) {
      StoreOutputs(out, min(params.heads, kHeadTile), staged, factor, consumer.o);
    }
  };
  for (;;) {
    // Group 0 stores results behind the products of the next piece; group 1, whose tile comes
    // later, right away.
    if constexpr (kSelf == 1) store();
    const AttentionWork work = consumer.NextWork();
    const int tiles = Uniform(work.tile_end - work.tile);
    if constexpr (kSelf == 0) {
      if (tiles > 0) consumer.Multiply();
      store();
      WgmmaWait<0>();
    }
    if (tiles == 0) return;
    consumer.Begin(work);
    for (int tile = 0; tile < tiles; tile += kPair) {
      consumer.AttendPair(tile + 1 < tiles, tile + kPair >= tiles);
    }
#pragma unroll
    for (float& sum : consumer.softmax.sum.v) sum = LaneSum<4>(sum);
    factor = FinishSoftmax(params, plan, work, HeadOfThread(), consumer.softmax,
                           /*reports=*/kSelf == 0);
    if (work.parts == 1) {
      const int64_t row_head = static_cast<int64_t>(work.row) * params.heads + work.head_begin;
      out = params.out + row_head * kKvDim + kFirstChannel;
    } else {
      StoreParts(params, plan, work, HeadOfThread(), kFirstChannel, consumer.o);
      out = nullptr;
    }
  }
}

template <EntryFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1)
    AttendKernel(const __grid_constant__ SparseAttentionParams params,
                 const __grid_constant__ AttentionPlan plan) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  if (threadIdx.x == 0) shared.gather.Init(kGroup / 32, kConsumers);
  __syncthreads();
  AwaitPredecessorsAlone();
  // The compiler grants registers by role only where each role is one branch.
  const int role = Uniform(static_cast<int>(threadIdx.x) / kGroup);
  if (role == 0) {
    ReleaseRegisters<88>();
    Gather<kFormat>(params, plan, shared);
  } else {
    ClaimRegisters<208>();
    if (role == 1) {
      Attend<0>(params, plan, shared);
    } else {
      Attend<1>(params, plan, shared);
    }
  }
}

}  // namespace

void LaunchAttentionSm90a(const SparseAttentionParams& params, const AttentionPlan& plan,
                          CUstream_st* stream) {
  Launch({.bf16 = AttendKernel<EntryFormat::kBf16>,
          .fp8_packed = AttendKernel<EntryFormat::kFp8Packed>},
         {.grid = static_cast<unsigned>(plan.blocks),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared)},
         params, plan, stream);
}

}  // namespace baton::kernels::cuda
