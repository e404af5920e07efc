#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/grouped_tiles.cuh"
#include "kernels/cuda/grouped_weights.cuh"
#include "kernels/cuda/grouped_wgmma.cuh"
#include "kernels/cuda/moe_gate.cuh"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

// Four warpgroups multiply, each 64 of a tile's 256 weight rows by its kTokens slots, a fifth
// fetches: weights by bulk copies (a chunk lies in one piece), slots' rows, which lie anywhere, by
// cp.async. The weights are the left operand, since only that one may come from registers, where
// FP4 is widened. A warpgroup that multiplies waits for its registers to be read, so it takes
// several of them to keep tensor cores and ALUs busy at once.
constexpr int kWarpgroups = 4;
constexpr int kMultipliers = 128 * kWarpgroups;
constexpr int kFetchers = 128;
constexpr int kThreads = kMultipliers + kFetchers;
// A block starts with 96 registers a thread (65,536 / 640, in steps of 8); claiming more than those
// that were released would wait for ever.
constexpr int kFetcherRegisters = 32;
constexpr int kMultiplierRegisters = 112;
static_assert(kFetchers * kFetcherRegisters + kMultipliers * kMultiplierRegisters <= kThreads * 96);
constexpr int kMultiplierBarrier = 1;  // of SyncThreads
constexpr int kSharedBytes = 227 * 1024;
constexpr int kMaxStages = 16;

// What both products have in common.
struct GroupedParams {
  const std::byte* weights;
  int64_t expert_bytes;
  const float* factors;  // of this product, two apart
  int experts;
  int row_blocks;
  int steps;  // of 64 columns
  ExpertSlots slots;
  const __nv_bfloat16* x;
  int64_t x_rows;
  int64_t x_stride;
  float limit;
  __nv_bfloat16* y;
  int64_t y_stride;
};

// kGated: the rows are those of w1 and w3, whose results become 128 columns of hidden; otherwise
// the 256 rows are columns of y.
template <int kTokens, bool kGated>
struct Shape {
  // Chunks a stage: with few slots, waiting costs more than computing.
  static constexpr int kChunks = kTokens <= 64 ? 2 : 1;
  static constexpr int kInputBytes = kTokens * kChunkColumns * 2;  // of a chunk
  static constexpr int kWeightBytes = kChunks * kChunkBytes;
  static constexpr int kStageBytes = kChunks * kInputBytes + (kWeightBytes + 1023) / 1024 * 1024;
  static constexpr int kColumns = kGated ? 128 : 256;      // of y
  static constexpr int kResultStride = kColumns * 2 + 16;  // bytes; keeps stores off one bank
  static constexpr int kResultBytes = kTokens * kResultStride;
  static constexpr int kRowsAFetcher = (kTokens + 15) / 16;
  static constexpr int kFixedBytes = 1024 + kFetchers * kRowsAFetcher * 4 + kResultBytes +
                                     (kGated ? (4 * kWarpgroups + 1) * kTokens * 4 : 0) +
                                     static_cast<int>(sizeof(TileList)) + 16 * kMaxStages;
  static constexpr int kStages = std::min(kMaxStages, (kSharedBytes - kFixedBytes) / kStageBytes);
  static constexpr int kBytes = kFixedBytes + kStages * kStageBytes;
  static constexpr int kLag = 4 - kChunks;  // stages whose copies are on their way, at least
  static_assert(kStages >= kLag + 2);       // multipliers hold one while they wait for the next
};

template <int kTokens, bool kGated>
struct Shared {
  using S = Shape<kTokens, kGated>;
  std::byte* base;  // aligned to 1,024 bytes

  __device__ explicit Shared(std::byte* raw)
      : base(raw + (1024 - SharedAddress(raw) % 1024) % 1024) {}
  __device__ std::byte* Input(int n) const { return base + n % S::kStages * S::kStageBytes; }
  __device__ std::byte* Weights(int n) const { return Input(n) + S::kChunks * S::kInputBytes; }
  __device__ std::byte* Result() const { return base + S::kStages * S::kStageBytes; }
  __device__ TileList& Tiles() const {
    return *reinterpret_cast<TileList*>(Result() + S::kResultBytes);
  }
  __device__ StageRing<S::kStages>& Ring() const {
    static_assert(sizeof(StageRing<S::kStages>) <= 16 * kMaxStages);
    return *reinterpret_cast<StageRing<S::kStages>*>(&Tiles() + 1);
  }
  // Of each token: its routing weight, later its scale; the largest magnitude among the rows of
  // each of the 16 warps.
  __device__ float* Largest(int warp) const {
    return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(&Ring()) + 16 * kMaxStages) +
           warp * kTokens;
  }
  __device__ float* Scales() const { return Largest(4 * kWarpgroups); }
  // Where a fetching thread's rows of x start, in units of 16 bytes. Its own notes: it has not the
  // registers for them.
  __device__ uint32_t& Row(int i, int thread) const {
    return reinterpret_cast<uint32_t*>(
        Largest(kGated ? 4 * kWarpgroups + 1 : 0))[i * kFetchers + thread];
  }
};
static_assert(sizeof(TileList) % 8 == 0);

__device__ void CopyBulk(uint32_t to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
__device__ void ArriveExpecting(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// The fetching warpgroup. A stage is announced kLag steps later, once its copies have arrived: the
// fence is theirs, since it would hold up the multipliers.
template <int kTokens, bool kGated>
__device__ void Fetch(const GroupedParams& params, const Shared<kTokens, kGated>& shared) {
  using S = Shape<kTokens, kGated>;
  const int thread = threadIdx.x - kMultipliers;
  const int piece = thread % 8;
  auto& ring = shared.Ring();
  const int tiles = shared.Tiles().before[params.experts] * params.row_blocks;
  int n = 0;
  const auto announce = [&](int stage) {
    FenceForTensorCores();
    ring.ArriveFull(stage);
  };
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const ExpertTile tile =
        shared.Tiles().template At<kTokens>(index, params.experts, params.row_blocks);
    const std::byte* chunk = params.weights + tile.expert * params.expert_bytes +
                             int64_t{tile.row_block} * params.steps * kChunkBytes;
#pragma unroll 2
    for (int i = 0; i < S::kRowsAFetcher; ++i) {
      const int slot = tile.first_slot + min(thread / 8 + 16 * i, tile.slots - 1);
      const int64_t row = kGated ? params.slots.row[slot] : slot;
      shared.Row(i, thread) = static_cast<uint32_t>(row * params.x_stride / 8 + piece);
    }
    const __nv_bfloat16* x = params.x;
#pragma unroll 1
    for (int step = 0; step < params.steps; step += S::kChunks, ++n) {
      ring.WaitEmpty(n);
      uint64_t* full = &ring.full[n % S::kStages];
      if (thread == 0) {
        ArriveExpecting(full, S::kWeightBytes);
        CopyBulk(SharedAddress(shared.Weights(n)), chunk, S::kWeightBytes, full);
        chunk += S::kWeightBytes;
      }
      // Rows 16 apart have the same swizzle.
      const uint32_t input = SharedAddress(shared.Input(n)) + SwizzledOffset(thread / 8, piece);
#pragma unroll 4
      for (int i = 0; i < S::kRowsAFetcher; ++i) {
        if (thread / 8 + 16 * i >= tile.slots) break;
        const __nv_bfloat16* from = x + uint64_t{shared.Row(i, thread)} * 8;
#pragma unroll
        for (int chunk_of = 0; chunk_of < S::kChunks; ++chunk_of) {
          CopyAsync16(input + chunk_of * S::kInputBytes + i * 16 * 128,
                      from + chunk_of * kChunkColumns, true);
        }
      }
      x += S::kChunks * kChunkColumns;
      CommitCopies();
      WaitCopies<S::kLag>();
      if (n >= S::kLag) announce(n - S::kLag);
    }
  }
  WaitCopies<0>();
  for (int stage = max(0, n - S::kLag); stage < n; ++stage) announce(stage);
}

// acc += the calling warpgroup's 64 rows of a tile times kWidth of its slots. Columns past the last
// slot are whatever shared memory held; they are not stored. The next stage's weights are read
// while this one's are multiplied.
template <int kWidth, int kTokens, bool kGated>
__device__ void MultiplyTile(const Shared<kTokens, kGated>& shared, int steps, int& n,
                             float (&acc)[kWidth / 2]) {
  using S = Shape<kTokens, kGated>;
  auto& ring = shared.Ring();
  const int thread = threadIdx.x % 128;
  const int block = threadIdx.x / 128;
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) acc[i] = 0;
  uint4 codes[S::kChunks];
  uint32_t scales[S::kChunks];
  const auto load = [&](int stage) {
    ring.WaitFull(stage);
#pragma unroll
    for (int i = 0; i < S::kChunks; ++i) {
      const std::byte* chunk = shared.Weights(stage) + i * kChunkBytes;
      codes[i] = *reinterpret_cast<const uint4*>(chunk + ChunkCodes(block, thread));
      scales[i] = *reinterpret_cast<const uint32_t*>(chunk + ChunkScales(block, thread));
    }
  };
  load(n);
  for (int step = 0; step < steps; step += S::kChunks, ++n) {
    const uint64_t input = ChannelsSummed(SharedAddress(shared.Input(n)));
    uint32_t a[S::kChunks][16];
#pragma unroll
    for (int i = 0; i < S::kChunks; ++i) WidenBlock(codes[i], scales[i], a[i]);
    WgmmaFence();
#pragma unroll
    for (int i = 0; i < S::kChunks; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        WgmmaRegisterA(acc, a[i] + 4 * j, input + i * S::kInputBytes / 16 + 2 * j);
      }
    }
    WgmmaCommit();
    if (step + S::kChunks < steps) load(n + 1);
    WgmmaWait<0>();
    if (threadIdx.x % 32 == 0) ring.ArriveEmpty(n);
  }
}

__device__ void StoreTransposed(std::byte* to, uint32_t first, uint32_t second) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};\n" ::"r"(SharedAddress(to)),
      "r"(first), "r"(second)
      : "memory");
}

// Result -> rows of y, 16 bytes a thread.
template <int kTokens, bool kGated>
__device__ void WriteResult(const GroupedParams& params, const ExpertTile& tile,
                            const Shared<kTokens, kGated>& shared) {
  using S = Shape<kTokens, kGated>;
  constexpr int kPieces = S::kColumns / 8;
  SyncThreads(kMultiplierBarrier, kMultipliers);
  for (int i = threadIdx.x; i < tile.slots * kPieces; i += kMultipliers) {
    const int slot = i / kPieces;
    const int piece = i % kPieces;
    Store16(params.y + (tile.first_slot + slot) * params.y_stride +
                int64_t{tile.row_block} * S::kColumns + piece * 8,
            Load16(shared.Result() + slot * S::kResultStride + piece * 16));
  }
}

// Fetched before a tile is multiplied, so that nobody waits for them after.
struct TileFactors {
  float weights;  // of the expert's weights
  float routing;  // routing weight of slot threadIdx.x of the tile
};

// SwiGLU and quantisation. Lane i of warp w holds w1's row 8 w + i / 4 of the tile in acc[4 j] and
// acc[4 j + 1] and w3's in the two that follow.
template <int kWidth, int kTokens>
__device__ void Finish(const GroupedParams& params, const ExpertTile& tile,
                       const Shared<kTokens, true>& shared, const TileFactors& factors,
                       float (&acc)[kWidth / 2]) {
  using S = Shape<kTokens, true>;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const float factor = factors.weights;
  if (threadIdx.x < kWidth) shared.Scales()[threadIdx.x] = factors.routing;
  SyncThreads(kMultiplierBarrier, kMultipliers);  // and the last tile's result has been read
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    const float2 routing =
        *reinterpret_cast<const float2*>(shared.Scales() + 8 * j + 2 * (lane % 4));
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int token = 8 * j + 2 * (lane % 4) + side;
      float& value = acc[4 * j + side];
      value = Gate(RoundToBf16(value * factor), RoundToBf16(acc[4 * j + 2 + side] * factor),
                   side == 0 ? routing.x : routing.y, params.limit);
      float largest = fabsf(value);
      for (int distance = 4; distance < 32; distance *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, distance));
      }
      if (lane < 4) shared.Largest(warp)[token] = largest;
    }
  }
  SyncThreads(kMultiplierBarrier, kMultipliers);
  if (threadIdx.x < kWidth) {
    float largest = 0;
    for (int other = 0; other < kMultipliers / 32; ++other) {
      largest = fmaxf(largest, shared.Largest(other)[threadIdx.x]);
    }
    shared.Scales()[threadIdx.x] = Fp8Scale(largest);
  }
  SyncThreads(kMultiplierBarrier, kMultipliers);
  const auto quantised = [&](int j) {
    const float2 scale = *reinterpret_cast<const float2*>(shared.Scales() + 8 * j + 2 * (lane % 4));
    const float2 value = UnpackE4m3(PackE4m3(acc[4 * j] * InverseOfPowerOfTwo(scale.x),
                                             acc[4 * j + 1] * InverseOfPowerOfTwo(scale.y)));
    return PackBf16(value.x * scale.x, value.y * scale.y);
  };
#pragma unroll
  for (int j = 0; j < kWidth / 8; j += 2) {
    const int next = min(j + 1, kWidth / 8 - 1);  // twice the same where there is but one
    const int mine = lane / 8 % 2 == 0 ? j : next;
    StoreTransposed(shared.Result() + (8 * mine + lane % 8) * S::kResultStride + warp * 16,
                    quantised(j), quantised(next));
  }
  WriteResult(params, tile, shared);
}

template <int kWidth, int kTokens>
__device__ void Finish(const GroupedParams& params, const ExpertTile& tile,
                       const Shared<kTokens, false>& shared, const TileFactors& factors,
                       float (&acc)[kWidth / 2]) {
  using S = Shape<kTokens, false>;
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 8 % 2 * 8;
  const float factor = factors.weights;
  SyncThreads(kMultiplierBarrier, kMultipliers);  // the last tile's result has been read
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    StoreTransposed(shared.Result() + (8 * j + lane % 8) * S::kResultStride + row * 2,
                    PackBf16(acc[4 * j] * factor, acc[4 * j + 1] * factor),
                    PackBf16(acc[4 * j + 2] * factor, acc[4 * j + 3] * factor));
  }
  WriteResult(params, tile, shared);
}

template <int kWidth, int kTokens, bool kGated>
__device__ void ComputeTile(const GroupedParams& params, const ExpertTile& tile,
                            const Shared<kTokens, kGated>& shared, int& n) {
  const int slot = tile.first_slot + min(static_cast<int>(threadIdx.x), tile.slots - 1);
  const TileFactors factors = {params.factors[2 * tile.expert],
                               kGated ? params.slots.weight[slot] : 0.0f};
  float acc[kWidth / 2];
  MultiplyTile<kWidth>(shared, params.steps, n, acc);
  Finish<kWidth>(params, tile, shared, factors, acc);
}

template <int kTokens, bool kGated>
__global__ void __launch_bounds__(kThreads, 1) GroupedProduct(GroupedParams params) {
  extern __shared__ std::byte raw[];
  const Shared<kTokens, kGated> shared(raw);
  shared.Tiles().template Init<kTokens>(params.slots.begin, params.experts);
  if (threadIdx.x == 32) shared.Ring().Init(kFetchers + 1, kMultipliers / 32);
  __syncthreads();
  if (threadIdx.x >= kMultipliers) {
    ReleaseRegisters<kFetcherRegisters>();
    Fetch(params, shared);
  } else {
    ClaimRegisters<kMultiplierRegisters>();
    const int tiles = shared.Tiles().before[params.experts] * params.row_blocks;
    int n = 0;
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
      const ExpertTile tile =
          shared.Tiles().template At<kTokens>(index, params.experts, params.row_blocks);
      if constexpr (kTokens < 128) {
        ComputeTile<kTokens>(params, tile, shared, n);
      } else {
        // An expert's last tile is rarely full.
        if (tile.slots > 96) {
          ComputeTile<128>(params, tile, shared, n);
        } else if (tile.slots > 64) {
          ComputeTile<96>(params, tile, shared, n);
        } else if (tile.slots > 32) {
          ComputeTile<64>(params, tile, shared, n);
        } else {
          ComputeTile<32>(params, tile, shared, n);
        }
      }
    }
  }
}

template <int kTokens, bool kGated>
void Launch(const GroupedParams& params, CUstream_st* stream) {
  constexpr int kBytes = Shape<kTokens, kGated>::kBytes;
  CheckCuda(cudaFuncSetAttribute(GroupedProduct<kTokens, kGated>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
            "cudaFuncSetAttribute");
  GroupedProduct<kTokens, kGated>
      <<<CurrentDevice().multiprocessors, kThreads, kBytes, stream>>>(params);
  CheckLaunch("GroupedProduct");
}

template <bool kGated>
void LaunchFor(const GroupedParams& params, CUstream_st* stream) {
  BATON_CHECK(CurrentDevice().compute_capability == 90)
      << "grouped experts need wgmma, which compute capability 9.0 has and "
      << CurrentDevice().compute_capability / 10.0 << " has not";
  BATON_CHECK(params.experts <= kMaxExperts) << params.experts << " experts";
  BATON_CHECK(params.x_rows * params.x_stride / 8 < int64_t{1} << 32) << "x reaches past 64 GiB";
  if (params.slots.count == 0) return;
  // Twice the mean: few experts then need a second tile, which would read their weights again.
  const int64_t wanted = 2 * params.slots.count / params.experts;
  if (wanted <= 8) return Launch<8, kGated>(params, stream);
  if (wanted <= 16) return Launch<16, kGated>(params, stream);
  if (wanted <= 32) return Launch<32, kGated>(params, stream);
  if (wanted <= 64) return Launch<64, kGated>(params, stream);
  return Launch<128, kGated>(params, stream);
}

}  // namespace

void ExpertGateUp(const ExpertGateUpParams& params, CUstream_st* stream) {
  const ExpertBank& bank = params.bank;
  BATON_CHECK(params.x.cols == bank.d && params.x.stride % 8 == 0 && params.hidden.cols == bank.f &&
              params.hidden.rows == params.slots.count && params.hidden.stride % 8 == 0)
      << "x " << params.x.cols << ", hidden [" << params.hidden.rows << ", " << params.hidden.cols
      << "], experts " << bank.d << " to " << bank.f;
  LaunchFor<true>({.weights = bank.gate_up,
                   .expert_bytes = GateUpBytes(bank.d, bank.f),
                   .factors = bank.factors,
                   .experts = bank.experts,
                   .row_blocks = static_cast<int>(2 * bank.f / kChunkRows),
                   .steps = static_cast<int>(bank.d / kChunkColumns),
                   .slots = params.slots,
                   .x = reinterpret_cast<const __nv_bfloat16*>(params.x.data),
                   .x_rows = params.x.rows,
                   .x_stride = params.x.stride,
                   .limit = params.limit,
                   .y = reinterpret_cast<__nv_bfloat16*>(params.hidden.data),
                   .y_stride = params.hidden.stride},
                  stream);
}

void ExpertDown(const ExpertDownParams& params, CUstream_st* stream) {
  const ExpertBank& bank = params.bank;
  BATON_CHECK(params.hidden.cols == bank.f && params.hidden.rows == params.slots.count &&
              params.hidden.stride % 8 == 0 && params.y.cols == bank.d &&
              params.y.rows == params.slots.count && params.y.stride % 8 == 0)
      << "hidden [" << params.hidden.rows << ", " << params.hidden.cols << "], y [" << params.y.rows
      << ", " << params.y.cols << "], experts " << bank.f << " to " << bank.d;
  LaunchFor<false>({.weights = bank.down,
                    .expert_bytes = DownBytes(bank.d, bank.f),
                    .factors = bank.factors + 1,
                    .experts = bank.experts,
                    .row_blocks = static_cast<int>(bank.d / kChunkRows),
                    .steps = static_cast<int>(bank.f / kChunkColumns),
                    .slots = params.slots,
                    .x = reinterpret_cast<const __nv_bfloat16*>(params.hidden.data),
                    .x_rows = params.hidden.rows,
                    .x_stride = params.hidden.stride,
                    .limit = 0,
                    .y = reinterpret_cast<__nv_bfloat16*>(params.y.data),
                    .y_stride = params.y.stride},
                   stream);
}

}  // namespace baton::kernels::cuda
