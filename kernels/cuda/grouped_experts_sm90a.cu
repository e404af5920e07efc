#include <algorithm>

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/grouped_finish.cuh"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/grouped_tiles.cuh"
#include "kernels/cuda/grouped_weights.cuh"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

// Some warpgroups multiply, each 64 of a tile's weight rows by its kTokens slots, one more fetches:
// weights by bulk copies (blocks lie in one piece), slots' rows, which lie anywhere, by cp.async.
// The weights are the left operand, since only that one may come from registers, where FP4 is
// widened: the next block while tensor cores multiply this one. Many slots take registers for sums
// and leave room for two such warpgroups, which then pass over the tile's 256 rows in two halves.
constexpr int kFetchers = 128;
constexpr int kSharedBytes = 227 * 1024;
constexpr int kMaxStages = 16;

template <int kTokens, bool kGated>
struct Shape {
  static constexpr int kWarpgroups = kTokens <= 32 ? 4 : 2;
  static constexpr int kPasses = kTileBlocks / kWarpgroups;
  static constexpr int kMultipliers = 128 * kWarpgroups;
  static constexpr int kThreads = kMultipliers + kFetchers;
  // A block starts with the same number of registers for all its threads; claiming more than were
  // released would wait for ever.
  static constexpr int kFetcherRegisters = kWarpgroups == 4 ? 64 : 56;
  static constexpr int kMultiplierRegisters = kWarpgroups == 4 ? 104 : 224;
  static_assert(kFetchers * kFetcherRegisters + kMultipliers * kMultiplierRegisters <=
                kThreads * (65536 / kThreads / 8 * 8));

  static constexpr int kInputBytes = kTokens * kBlockColumns;
  static constexpr int kWeightBytes = kWarpgroups * kBlockBytes;
  static constexpr int kStageBytes =
      (kInputBytes + kWeightBytes + kTokens * 4 + 1023) / 1024 * 1024;
  // Results wait for being written in BF16: hidden until all of its 128 columns are there, y until
  // a pass is over.
  static constexpr int kColumns = kGated ? 128 : kWarpgroups * kBlockRows;
  static constexpr int kResultStride = kColumns * 2 + 16;  // bytes; keeps stores off one bank
  static constexpr int kResultBytes = kTokens * kResultStride;
  static constexpr int kRowsAFetcher = (kTokens + 15) / 16;
  static constexpr int kFixedBytes = 1024 + kResultBytes + (kGated ? kTokens * 4 : 0) +
                                     static_cast<int>(sizeof(TileList)) + 16 * kMaxStages;
  static constexpr int kStages = std::min(kMaxStages, (kSharedBytes - kFixedBytes) / kStageBytes);
  static constexpr int kBytes = kFixedBytes + kStages * kStageBytes;
  static_assert(kStages >= 4);  // multipliers hold one and wait for the next
};

template <int kTokens, bool kGated>
struct Shared {
  using S = Shape<kTokens, kGated>;
  std::byte* base;  // aligned to 1,024 bytes

  __device__ explicit Shared(std::byte* raw)
      : base(raw + (1024 - SharedAddress(raw) % 1024) % 1024) {}
  __device__ std::byte* Input(int n) const { return base + n % S::kStages * S::kStageBytes; }
  __device__ std::byte* Weights(int n) const { return Input(n) + S::kInputBytes; }
  // Of each slot's 128 columns.
  __device__ float* Scales(int n) const {
    return reinterpret_cast<float*>(Weights(n) + S::kWeightBytes);
  }
  __device__ std::byte* Result() const { return base + S::kStages * S::kStageBytes; }
  __device__ TileList& Tiles() const {
    return *reinterpret_cast<TileList*>(Result() + S::kResultBytes);
  }
  __device__ StageRing<S::kStages>& Ring() const {
    static_assert(sizeof(StageRing<S::kStages>) <= 16 * kMaxStages);
    return *reinterpret_cast<StageRing<S::kStages>*>(&Tiles() + 1);
  }
  // Of each slot.
  __device__ float* RoutingWeights() const {
    return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(&Ring()) + 16 * kMaxStages);
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

// A block's tiles: every gridDim.x-th of the list, each second time from the other end, since
// experts' last tiles, which are rarely full, may all fall on the same blocks otherwise.
__device__ int TileIndex(int round) {
  return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

// The fetching warpgroup: eight threads a row and step, and one for a row's scale. A stage is full
// when all its copies have arrived; nobody waits for that here, and a fence between the copies and
// tensor cores, which would, is left to the readers.
template <int kTokens, bool kGated>
__device__ void Fetch(const GroupedParams& params, const Shared<kTokens, kGated>& shared) {
  using S = Shape<kTokens, kGated>;
  const int thread = threadIdx.x - S::kMultipliers;
  auto& ring = shared.Ring();
  const int tiles = shared.Tiles().before[params.experts] * params.row_blocks;
  // Rows 16 apart have the same swizzle.
  const int input = SwizzledOffset(thread / 8, thread % 8);
  int n = 0;
  int index;
  for (int round = 0; (index = TileIndex(round)) < tiles; ++round) {
    const ExpertTile tile =
        shared.Tiles().template At<kTokens>(index, params.experts, params.row_blocks);
    const auto row_of = [&](int slot) -> uint32_t {
      slot = tile.first_slot + min(slot, tile.slots - 1);
      return kGated ? params.slots.row[slot] : slot;
    };
    uint32_t rows[S::kRowsAFetcher];  // where they begin, in units of 16 bytes
#pragma unroll
    for (int i = 0; i < S::kRowsAFetcher; ++i) {
      rows[i] = row_of(thread / 8 + 16 * i) * static_cast<uint32_t>(params.x.stride / 16);
    }
    const uint32_t scale_row = row_of(thread);
    const std::byte* weights = params.weights + tile.expert * params.expert_bytes +
                               int64_t{tile.row_block} * params.steps * kTileBlocks * kBlockBytes;
#pragma unroll 1
    for (int pass = 0; pass < S::kPasses; ++pass, weights += S::kWeightBytes) {
      const uint8_t* codes = params.x.codes + thread % 8 * 16;
      const float* scale = params.x.scales + scale_row;
#pragma unroll 1
      for (int step = 0; step < params.steps; ++step, ++n) {
        ring.WaitEmpty(n);
        uint64_t* full = &ring.full[n % S::kStages];
        if (thread == 0) {
          ArriveExpecting(full, S::kWeightBytes);
          CopyBulk(SharedAddress(shared.Weights(n)), weights + step * (kTileBlocks * kBlockBytes),
                   S::kWeightBytes, full);
        }
        const uint32_t to = SharedAddress(shared.Input(n)) + input;
#pragma unroll
        for (int i = 0; i < S::kRowsAFetcher; ++i) {
          const int slot = thread / 8 + 16 * i;
          if (slot >= kTokens) break;  // some of the threads, where there are fewer than 16
          CopyAsync16(to + i * 16 * 128, codes + uint64_t{rows[i]} * 16, slot < tile.slots);
        }
        if (thread < kTokens) {
          CopyAsync4(SharedAddress(shared.Scales(n) + thread), scale, thread < tile.slots);
        }
        ArriveWhenCopied(full);
        codes += kBlockColumns;
        scale += params.x.scale_stride;
      }
    }
  }
}

// acc = the calling warpgroup's 64 rows of a pass, unscaled, times kWidth of the tile's slots.
template <int kWidth, int kTokens, bool kGated>
__device__ void MultiplyPass(const Shared<kTokens, kGated>& shared, int steps, int& n,
                             float (&acc)[kWidth / 2]) {
  using S = Shape<kTokens, kGated>;
  auto& ring = shared.Ring();
  const int thread = threadIdx.x % 128;
  const auto block = [&](int stage) {
    return shared.Weights(stage) + threadIdx.x / 128 * kBlockBytes;
  };
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) acc[i] = 0;
  uint32_t a[16];
  const auto widen = [&](int stage, uint32_t(&to)[16]) {
    ring.WaitFull(stage);
    FenceForTensorCores();
    WidenBlock(block(stage), thread, to);
  };
  widen(n, a);
#pragma unroll 1
  for (int step = 0; step < steps; ++step, ++n) {
    float sum[kWidth / 2];
    const uint64_t input = ChannelsSummed(SharedAddress(shared.Input(n)));
    KeepUntilHere(a);
    WgmmaFence();
#pragma unroll
    for (int j = 0; j < 4; ++j) WgmmaFp8(sum, a + 4 * j, Advanced(input, 32 * j), j > 0);
    WgmmaCommit();

    uint32_t next[16];
    if (step + 1 < steps) widen(n + 1, next);
    const float* scales = shared.Scales(n) + 2 * (thread % 4);
    WgmmaWait<0>();
    KeepUntilHere(a);
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      const float2 scale = *reinterpret_cast<const float2*>(scales + 8 * j);
      acc[4 * j] = fmaf(sum[4 * j], scale.x, acc[4 * j]);
      acc[4 * j + 1] = fmaf(sum[4 * j + 1], scale.y, acc[4 * j + 1]);
      acc[4 * j + 2] = fmaf(sum[4 * j + 2], scale.x, acc[4 * j + 2]);
      acc[4 * j + 3] = fmaf(sum[4 * j + 3], scale.y, acc[4 * j + 3]);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ring.ArriveEmpty(n);
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = next[i];
  }
}

template <int kWidth, int kTokens, bool kGated>
__device__ void ComputeTile(const GroupedParams& params, const ExpertTile& tile,
                            const Shared<kTokens, kGated>& shared, int& n) {
  // Fetched before the tile is multiplied, so that nobody waits for it after.
  const int slot = tile.first_slot + min(static_cast<int>(threadIdx.x), tile.slots - 1);
  const float routing = kGated ? params.slots.weight[slot] : 0.0f;
#pragma unroll 1
  for (int pass = 0; pass < Shape<kTokens, kGated>::kPasses; ++pass) {
    const int64_t row = int64_t{tile.row_block} * kTileRows +
                        pass * Shape<kTokens, kGated>::kMultipliers / 2 + threadIdx.x / 32 * 16 +
                        threadIdx.x % 32 / 4;
    const float* row_scales = params.row_scales + tile.expert * params.expert_scales + row;
    const RowScales scales = {row_scales[0], row_scales[8]};
    float acc[kWidth / 2];
    MultiplyPass<kWidth>(shared, params.steps, n, acc);
    if constexpr (kGated) {
      FinishGated<kWidth>(params, tile, pass, shared, scales, routing, acc);
    } else {
      FinishPlain<kWidth>(params, tile, pass, shared, scales, acc);
    }
  }
}

template <int kTokens, bool kGated>
__global__ void __launch_bounds__(Shape<kTokens, kGated>::kThreads, 1)
    GroupedProduct(GroupedParams params) {
  AwaitPredecessors();
  using S = Shape<kTokens, kGated>;
  extern __shared__ std::byte raw[];
  const Shared<kTokens, kGated> shared(raw);
  shared.Tiles().template Init<kTokens>(params.slots.begin, params.experts);
  if (threadIdx.x == 32) shared.Ring().Init(kFetchers + 1, S::kMultipliers / 32);
  __syncthreads();
  if (threadIdx.x >= S::kMultipliers) {
    ReleaseRegisters<S::kFetcherRegisters>();
    Fetch(params, shared);
  } else {
    ClaimRegisters<S::kMultiplierRegisters>();
    const int tiles = shared.Tiles().before[params.experts] * params.row_blocks;
    int n = 0;
    int index;
    for (int round = 0; (index = TileIndex(round)) < tiles; ++round) {
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
  LaunchClosely(GroupedProduct<kTokens, kGated>,
                {dim3(CurrentDevice().multiprocessors), Shape<kTokens, kGated>::kThreads, kBytes},
                stream, params);
  CheckLaunch("GroupedProduct");
}

}  // namespace

template <bool kGated>
void GroupedProductSm90a(const GroupedParams& params, CUstream_st* stream) {
  // Twice the mean: few experts then need a second tile, which would read their weights again.
  const int64_t wanted = 2 * params.slots.count / params.experts;
  if (wanted <= 8) return Launch<8, kGated>(params, stream);
  if (wanted <= 16) return Launch<16, kGated>(params, stream);
  if (wanted <= 32) return Launch<32, kGated>(params, stream);
  if (wanted <= 64) return Launch<64, kGated>(params, stream);
  return Launch<128, kGated>(params, stream);
}
template void GroupedProductSm90a<true>(const GroupedParams& params, CUstream_st* stream);
template void GroupedProductSm90a<false>(const GroupedParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
