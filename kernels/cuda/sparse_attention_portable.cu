#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/sparse_attention_fragments.cuh"
#include "kernels/cuda/sparse_attention_launch.cuh"
#include "kernels/cuda/sparse_attention_plan.h"

// Attention by mma.sync. A block computes one piece of work for 32 heads: each of its warps has 16
// heads and a quarter of the channels, of queries, candidates and output alike. Four warps add up
// their shares of the scores of 32 candidates; then each knows all probabilities of its heads, as
// operands that it multiplies with its quarter of the values. Shared memory stays below the 99 KiB
// of the smallest cards.

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32;    // candidates
constexpr int kQuarter = 4;  // warps that share 16 heads
constexpr int kChannels = kKvDim / kQuarter;
constexpr int kRowThreads = kThreads / kTile;  // that bring a candidate
constexpr int kPackedSteps = (kPackedPieces + kRowThreads - 1) / kRowThreads;
static_assert(kThreads / 32 * 16 / kQuarter == kPortableHeadTile);

struct Shared {
  alignas(1024) uint8_t tiles[2][kTile * kKvDim * 2];
  float4 partial_scores[kThreads / 32][kTile / 8][32];
  bool exists[2][kTile];
};

// Brings tiles of candidates as BF16: eight threads a candidate. The places of a tile are looked up
// a tile before it is fetched; codes travel in registers while the tile before is computed.
template <EntryFormat kFormat>
struct Loader {
  const SparseAttentionParams& params;
  const RowCandidates& candidates;
  int row;  // of the batch
  Shared& shared;
  KvSource next = {};     // of the tile to fetch
  KvSource current = {};  // of the tile on its way
  bool packed = false;
  uint64_t scales = 0;
  Vector16 pieces[kPackedSteps] = {};

  __device__ static int Row() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  __device__ static int Lane() { return static_cast<int>(threadIdx.x) % kRowThreads; }

  __device__ void Locate(int tile) {
    next = SlotSource<kFormat>(params, candidates, row, tile * kTile + Row());
  }
  __device__ void Fetch(int tile, int stage) {
    current = next;
    packed = kFormat == EntryFormat::kFp8Packed && tile * kTile >= candidates.window_slots;
    if (packed) {
      scales = current.Scales();
#pragma unroll
      for (int i = 0; i < kPackedSteps; ++i) {
        const int piece = i * kRowThreads + Lane();
        const bool exists = current.data != nullptr && piece < kPackedPieces;
        pieces[i] = exists ? Load16(current.data + piece * 16) : Vector16{0, 0, 0, 0};
      }
    } else {
      const bool exists = current.data != nullptr;
#pragma unroll
      for (int i = 0; i < kKvDim / 8 / kRowThreads; ++i) {
        const int piece = i * kRowThreads + Lane();
        const void* source =
            exists ? static_cast<const void*>(current.data + piece * 16) : params.q;
        CopyAsync16(SharedAddress(shared.tiles[stage] + KvOffset<kTile>(Row(), piece)), source,
                    exists);
      }
    }
    CommitCopies();
  }
  __device__ void Finish(int stage) const {
    if (Lane() == 0) shared.exists[stage][Row()] = current.data != nullptr;
    if (!packed) return;
#pragma unroll
    for (int i = 0; i < kPackedSteps; ++i) {
      const int piece = i * kRowThreads + Lane();
      if (piece >= kPackedPieces) continue;
      StorePackedPiece<kTile>(shared.tiles[stage], Row(), piece, pieces[i], scales);
    }
  }
};

// What a warp computes: 16 heads, channels [first_channel, first_channel + kChannels).
struct WarpPart {
  int head;  // of the lane's first fragment row, in the piece of work
  int first_channel;
  uint32_t q[kChannels / 16][4];
  float o[kChannels / 2] = {};
  Softmax softmax;

  __device__ WarpPart(const SparseAttentionParams& params, const AttentionWork& work) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    head = warp / kQuarter * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    first_channel = warp % kQuarter * kChannels;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int h = work.head_begin + head + 8 * i;
      const bool exists = h < params.heads;
      const BFloat16* row =
          params.q + (static_cast<int64_t>(work.row) * params.heads + (exists ? h : 0)) * kKvDim +
          first_channel + threadIdx.x % 4 * 2;
#pragma unroll
      for (int k = 0; k < kChannels / 8; ++k) {
        q[k / 2][k % 2 * 2 + i] = exists ? *reinterpret_cast<const uint32_t*>(row + 8 * k) : 0;
      }
      softmax.sinks.v[i] = exists ? params.sinks[h] * kLog2E : 0.0f;
    }
  }

  // Scores over the warp's channels: candidates 8 j ... in scores[j].
  __device__ void Multiply(const uint8_t* tile, float (&scores)[kTile / 8][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < kChannels / 16; ++k) {
#pragma unroll
      for (int j = 0; j < kTile / 8; j += 2) {
        const int candidate = 8 * j + lane / 16 * 8 + lane % 8;
        const int piece = first_channel / 8 + 2 * k + lane / 8 % 2;
        uint32_t b[4];
        LoadMatrices(SharedAddress(tile + KvOffset<kTile>(candidate, piece)), b);
        Mma16x8x16(scores[j], q[k], b[0], b[1]);
        Mma16x8x16(scores[j + 1], q[k], b[2], b[3]);
      }
    }
  }

  // Scaled scores, -infinity where there is no candidate, become probabilities; what was summed
  // before follows a new maximum.
  __device__ void Exponentiate(const bool* exists, float scale, float (&scores)[kTile / 8][4]) {
    Pair maximum = softmax.maximum;
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      float& score = scores[i / 4][i % 4];
      const bool candidate = exists[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2];
      score = candidate ? score * scale : -INFINITY;
      maximum.v[i / 2 % 2] = fmaxf(maximum.v[i / 2 % 2], score);
    }
    Pair reference;  // finite even if nothing was a candidate so far
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maximum.v[i] = fmaxf(maximum.v[i], __shfl_xor_sync(kFullWarp, maximum.v[i], 1));
      maximum.v[i] = fmaxf(maximum.v[i], __shfl_xor_sync(kFullWarp, maximum.v[i], 2));
      reference.v[i] = maximum.v[i] == -INFINITY ? 0.0f : maximum.v[i];
      const float shrink = Exp2(softmax.maximum.v[i] - reference.v[i]);
      softmax.sum.v[i] *= shrink;
#pragma unroll
      for (int j = 0; j < kChannels / 8; ++j) {
        o[4 * j + 2 * i] *= shrink;
        o[4 * j + 2 * i + 1] *= shrink;
      }
    }
    softmax.maximum = maximum;
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      float& score = scores[i / 4][i % 4];
      score = Exp2(score - reference.v[i / 2 % 2]);
      softmax.sum.v[i / 2 % 2] += score;
    }
  }

  __device__ void AddValues(const uint8_t* tile, const float (&p)[kTile / 8][4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) {
      const uint32_t a[4] = {PackBf16(p[2 * k][0], p[2 * k][1]), PackBf16(p[2 * k][2], p[2 * k][3]),
                             PackBf16(p[2 * k + 1][0], p[2 * k + 1][1]),
                             PackBf16(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
      for (int j = 0; j < kChannels / 8; j += 2) {
        const int candidate = 16 * k + lane / 8 % 2 * 8 + lane % 8;
        const int piece = first_channel / 8 + j + lane / 16;
        uint32_t b[4];
        LoadMatricesTransposed(SharedAddress(tile + KvOffset<kTile>(candidate, piece)), b);
        Mma16x8x16(o + 4 * j, a, b[0], b[1]);
        Mma16x8x16(o + 4 * j + 4, a, b[2], b[3]);
      }
    }
  }
};

// The scores of all channels, in the same order for every warp.
__device__ void AddPartialScores(Shared& shared, float (&scores)[kTile / 8][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < kTile / 8; ++j) {
    shared.partial_scores[warp][j][lane] = {scores[j][0], scores[j][1], scores[j][2], scores[j][3]};
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kTile / 8; ++j) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int quarter = 0; quarter < kQuarter; ++quarter) {
      const float4 part = shared.partial_scores[warp / kQuarter * kQuarter + quarter][j][lane];
      sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
    }
    scores[j][0] = sum.x;
    scores[j][1] = sum.y;
    scores[j][2] = sum.z;
    scores[j][3] = sum.w;
  }
}

template <EntryFormat kFormat>
__global__ void __launch_bounds__(kThreads)
    AttendKernel(const __grid_constant__ SparseAttentionParams params,
                 const __grid_constant__ AttentionPlan plan) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  AwaitPredecessors();
  const RowCandidates candidates = CandidatesOf(params, RowOf(plan, blockIdx.x));
  const AttentionWork work = WorkOf(plan, candidates, blockIdx.x);
  if (work.tile >= work.tile_end) return;
  const int first = work.tile * (kKvTile / kTile);
  const int tiles = (work.tile_end - work.tile) * (kKvTile / kTile);
  Loader<kFormat> loader = {params, candidates, work.row, shared};
  loader.Locate(first);
  loader.Fetch(first, 0);
  loader.Locate(first + 1);
  WarpPart part(params, work);
  loader.Finish(0);
  for (int n = 0; n < tiles; ++n) {
    WaitCopies<0>();
    __syncthreads();  // this tile is there, and nobody needs the one before
    if (n + 1 < tiles) {
      loader.Fetch(first + n + 1, (n + 1) % 2);
      loader.Locate(first + n + 2);
    }
    const uint8_t* tile = shared.tiles[n % 2];
    float scores[kTile / 8][4] = {};
    part.Multiply(tile, scores);
    AddPartialScores(shared, scores);
    part.Exponentiate(shared.exists[n % 2], params.scale * kLog2E, scores);
    part.AddValues(tile, scores);
    if (n + 1 < tiles) loader.Finish((n + 1) % 2);
  }
#pragma unroll
  for (float& sum : part.softmax.sum.v) sum = LaneSum<4>(sum);
  const Pair factor = FinishSoftmax(params, plan, work, part.head, part.softmax,
                                    /*reports=*/part.first_channel == 0);
  if (work.parts == 1) {
    StoreHeads(params, work, part.head, part.first_channel, factor, part.o);
  } else {
    StoreParts(params, plan, work, part.head, part.first_channel, part.o);
  }
}

}  // namespace

void LaunchAttentionPortable(const SparseAttentionParams& params, const AttentionPlan& plan,
                             CUstream_st* stream) {
  Launch({.bf16 = AttendKernel<EntryFormat::kBf16>,
          .fp8_packed = AttendKernel<EntryFormat::kFp8Packed>},
         {.grid = static_cast<unsigned>(plan.items),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared)},
         params, plan, stream);
}

}  // namespace baton::kernels::cuda
