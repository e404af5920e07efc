#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/grouped_finish.cuh"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/grouped_tiles.cuh"
#include "kernels/cuda/grouped_weights.cuh"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

// Routed experts by mma.sync: 16 warps, each 16 of a tile's 256 weight rows by its kTokens slots.
// The operands of a warp are those of a quarter of a warpgroup, so weights are packed alike for
// both variants. A tile has 16 slots: more leave too few registers where FP8 products by mma.sync
// are made of FP16 ones, as on 9.0. Shared memory stays below the 99 KiB of the smallest cards.

namespace baton::kernels::cuda {

namespace {

template <int kTokens, bool kGated>
struct Shape {
  static constexpr int kMultipliers = 512;
  static constexpr int kPasses = 1;
  static constexpr int kStages = 3;
  static constexpr int kColumns = kGated ? 128 : 256;
  static constexpr int kResultStride = kColumns * 2 + 16;  // bytes; keeps stores off one bank
};

template <int kTokens, bool kGated>
struct Shared {
  using S = Shape<kTokens, kGated>;
  struct Stage {
    alignas(1024) uint8_t input[kTokens * kBlockColumns];
    alignas(16) std::byte weights[kTileBlocks * kBlockBytes];
    float scales[kTokens];  // of each slot's 128 columns
  };
  Stage stages[S::kStages];
  alignas(16) std::byte result[kTokens * S::kResultStride];
  mutable float routing_weights[kTokens];
  TileList tiles;

  __device__ std::byte* Result() const { return const_cast<std::byte*>(result); }
  __device__ float* RoutingWeights() const { return routing_weights; }
};

// 128 columns of a tile; zeros in place of slots that it does not have.
template <int kTokens, bool kGated>
__device__ void Fetch(const GroupedParams& params, const ExpertTile& tile, int step,
                      typename Shared<kTokens, kGated>::Stage& stage) {
  using S = Shape<kTokens, kGated>;
  const std::byte* weights =
      params.weights + tile.expert * params.expert_bytes +
      (int64_t{tile.row_block} * params.steps + step) * kTileBlocks * kBlockBytes;
  for (int i = threadIdx.x; i < kTileBlocks * kBlockBytes / 16; i += S::kMultipliers) {
    CopyAsync16(SharedAddress(stage.weights + i * 16), weights + i * 16, true);
  }
  const auto row_of = [&](int i) -> int64_t {
    const int slot = tile.first_slot + min(i, tile.slots - 1);
    return kGated ? params.slots.row[slot] : slot;
  };
  const int piece = static_cast<int>(threadIdx.x) % 8;
  for (int i = static_cast<int>(threadIdx.x) / 8; i < kTokens; i += S::kMultipliers / 8) {
    const uint8_t* codes =
        params.x.codes + row_of(i) * params.x.stride + step * kBlockColumns + piece * 16;
    CopyAsync16(SharedAddress(stage.input + SwizzledOffset(i, piece)), codes, i < tile.slots);
  }
  if (threadIdx.x < kTokens) {
    const int slot = static_cast<int>(threadIdx.x);
    CopyAsync4(SharedAddress(stage.scales + slot),
               params.x.scales + step * params.x.scale_stride + row_of(slot), slot < tile.slots);
  }
}

// d[16 x 8] += a[16 x 32] b[32 x 8], E4M3 in, FP32 out.
__device__ void Multiply(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// acc += the warp's 16 rows, unscaled, times kTokens slots, over 128 columns.
template <int kTokens, bool kGated>
__device__ void MultiplyStage(const typename Shared<kTokens, kGated>::Stage& stage,
                              float (&acc)[kTokens / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t a[16];
  WidenBlock(stage.weights + threadIdx.x / 128 * kBlockBytes, threadIdx.x % 128, a);
#pragma unroll
  for (int j = 0; j < kTokens / 8; j += 2) {  // 16 slots
    float sum[2][4] = {};
    const int slot = 8 * j + lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int k = 0; k < kBlockColumns / 32; ++k) {
      uint32_t b[4];
      LoadMatrices(SharedAddress(stage.input + SwizzledOffset(slot, 2 * k + lane / 8 % 2)), b);
      Multiply(sum[0], a + 4 * k, b[0], b[1]);
      Multiply(sum[1], a + 4 * k, b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* scales = stage.scales + 8 * (j + i) + 2 * (lane % 4);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        float& value = acc[4 * (j + i) + v];
        value = fmaf(sum[i][v], scales[v % 2], value);
      }
    }
  }
}

template <int kTokens, bool kGated>
__global__ void __launch_bounds__(Shape<kTokens, kGated>::kMultipliers, 1)
    GroupedProduct(GroupedParams params) {
  using S = Shape<kTokens, kGated>;
  static_assert(S::kPasses == 1);
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<Shared<kTokens, kGated>*>(dynamic_shared);
  shared.tiles.template Init<kTokens>(params.slots.begin, params.experts);
  __syncthreads();
  const int tiles = shared.tiles.before[params.experts] * params.row_blocks;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const ExpertTile tile =
        shared.tiles.template At<kTokens>(index, params.experts, params.row_blocks);
    const auto fetch = [&](int step) {
      if (step < params.steps) {
        Fetch<kTokens, kGated>(params, tile, step, shared.stages[step % S::kStages]);
      }
      CommitCopies();
    };
    const int slot = tile.first_slot + min(static_cast<int>(threadIdx.x), tile.slots - 1);
    const float routing = kGated ? params.slots.weight[slot] : 0.0f;
    const float* row_scales = params.row_scales + tile.expert * params.expert_scales +
                              int64_t{tile.row_block} * kTileRows + threadIdx.x / 32 * 16 +
                              threadIdx.x % 32 / 4;
    const RowScales scales = {row_scales[0], row_scales[8]};
    for (int step = 0; step < S::kStages - 1; ++step) fetch(step);
    float acc[kTokens / 2] = {};
    for (int step = 0; step < params.steps; ++step) {
      WaitCopies<S::kStages - 2>();
      __syncthreads();  // these columns are there, and nobody needs the ones before
      fetch(step + S::kStages - 1);
      MultiplyStage<kTokens, kGated>(shared.stages[step % S::kStages], acc);
    }
    if constexpr (kGated) {
      FinishGated<kTokens>(params, tile, 0, shared, scales, routing, acc);
    } else {
      FinishPlain<kTokens>(params, tile, 0, shared, scales, acc);
    }
  }
}

template <int kTokens, bool kGated>
void Launch(const GroupedParams& params, CUstream_st* stream) {
  constexpr int kBytes = sizeof(Shared<kTokens, kGated>);
  static_assert(kBytes <= 99 * 1024);
  CheckCuda(cudaFuncSetAttribute(GroupedProduct<kTokens, kGated>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
            "cudaFuncSetAttribute");
  constexpr int kBlocks = 2;  // of a multiprocessor, where it has the memory
  GroupedProduct<kTokens, kGated><<<kBlocks * CurrentDevice().multiprocessors,
                                    Shape<kTokens, kGated>::kMultipliers, kBytes, stream>>>(params);
  CheckLaunch("GroupedProduct");
}

}  // namespace

template <bool kGated>
void GroupedProductPortable(const GroupedParams& params, CUstream_st* stream) {
  Launch<16, kGated>(params, stream);
}
template void GroupedProductPortable<true>(const GroupedParams& params, CUstream_st* stream);
template void GroupedProductPortable<false>(const GroupedParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
