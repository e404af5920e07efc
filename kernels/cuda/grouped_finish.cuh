#pragma once

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/store_fp8.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/grouped_tiles.cuh"
#include "kernels/cuda/grouped_weights.cuh"
#include "kernels/cuda/moe_gate.cuh"

// What becomes of a tile's accumulators. S::kMultipliers threads hold them, 16 weight rows a warp,
// as tensor cores leave them, S::kPasses times until all 256 rows are done; Shared has room for the
// results of a pass, and for the routing weights.

namespace baton::kernels::cuda {

inline constexpr int kMultiplierBarrier = 1;  // of SyncThreads

__device__ inline void StoreTransposed(std::byte* to, uint32_t first, uint32_t second) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};\n" ::"r"(SharedAddress(to)),
      "r"(first), "r"(second)
      : "memory");
}

template <typename Shape>
__device__ void SyncMultipliers() {
  SyncThreads(kMultiplierBarrier, Shape::kMultipliers);
}

struct RowScales {
  float row;  // of the lane's first row of a warp's 16
  float next_row;
};

// SwiGLU. Lane i of warp w holds w1's row 8 w + i / 4 of the pass in acc[4 j] and acc[4 j + 1] and
// w3's in the two that follow; after the last pass all 128 columns are quantised.
template <int kWidth, typename Shared>
__device__ void FinishGated(const GroupedParams& params, const ExpertTile& tile, int pass,
                            const Shared& shared, const RowScales& scales, float routing,
                            float (&acc)[kWidth / 2]) {
  using S = typename Shared::S;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (pass == 0) {
    if (threadIdx.x < kWidth) shared.RoutingWeights()[threadIdx.x] = routing;
    SyncMultipliers<S>();  // and the last tile's result has been read
  }
  const auto gated = [&](int j) {
    const float2 weight =
        *reinterpret_cast<const float2*>(shared.RoutingWeights() + 8 * j + 2 * (lane % 4));
    const auto value = [&](int side, float routing_weight) {
      return Gate(RoundToBf16(acc[4 * j + side] * scales.row),
                  RoundToBf16(acc[4 * j + 2 + side] * scales.next_row), routing_weight,
                  params.limit);
    };
    return PackBf16(value(0, weight.x), value(1, weight.y));
  };
  std::byte* result = shared.Result() + (pass * S::kMultipliers / 32 + warp) * 16;
#pragma unroll
  for (int j = 0; j < kWidth / 8; j += 2) {
    const int next = min(j + 1, kWidth / 8 - 1);  // twice the same where there is but one
    const int mine = lane / 8 % 2 == 0 ? j : next;
    StoreTransposed(result + (8 * mine + lane % 8) * S::kResultStride, gated(j), gated(next));
  }
  if (pass + 1 < S::kPasses) return;
  SyncMultipliers<S>();
  for (int first = 2 * warp; first < tile.slots; first += S::kMultipliers / 16) {
    const int slot = first + lane / 16;
    const bool active = slot < tile.slots;
    uint4 values = {};
    if (active) values = Load16(shared.Result() + slot * S::kResultStride + lane % 16 * 16);
    const uint32_t words[4] = {values.x, values.y, values.z, values.w};
    const float scale = Fp8GroupScale(words);
    if (active) {
      StoreFp8(params.hidden, tile.first_slot + slot, tile.row_block * 128 + lane % 16 * 8, words,
               scale);
    }
  }
}

template <int kWidth, typename Shared>
__device__ void FinishPlain(const GroupedParams& params, const ExpertTile& tile, int pass,
                            const Shared& shared, const RowScales& scales,
                            float (&acc)[kWidth / 2]) {
  using S = typename Shared::S;
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 8 % 2 * 8;
  SyncMultipliers<S>();  // the last pass's result has been read
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    StoreTransposed(shared.Result() + (8 * j + lane % 8) * S::kResultStride + row * 2,
                    PackBf16(acc[4 * j] * scales.row, acc[4 * j + 1] * scales.row),
                    PackBf16(acc[4 * j + 2] * scales.next_row, acc[4 * j + 3] * scales.next_row));
  }
  SyncMultipliers<S>();
  constexpr int kPieces = S::kColumns / 8;
  const int64_t column = int64_t{tile.row_block} * kTileRows + pass * S::kColumns;
  for (int i = threadIdx.x; i < tile.slots * kPieces; i += S::kMultipliers) {
    const int slot = i / kPieces;
    const int piece = i % kPieces;
    Store16(params.y + (tile.first_slot + slot) * params.y_stride + column + piece * 8,
            Load16(shared.Result() + slot * S::kResultStride + piece * 16));
  }
}

}  // namespace baton::kernels::cuda
