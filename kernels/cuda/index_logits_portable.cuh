#pragma once

#include "kernels/cuda/index_rows.cuh"
#include "kernels/runtime/error.h"

// Index logits by mma.sync. A block of eight warps scores kRows rows against a range of keys, 128
// at a time; a warp multiplies 16 * kRows keys with the heads of one row. Shared memory stays
// below the 99 KiB of the smallest cards.

namespace baton::kernels::cuda {

template <EntryFormat kFormat, int kRows, typename Policy>
struct IndexPortable {
  static constexpr int kTile = 128;
  static constexpr int kTileBytes = kTile * kKeyBytes;
  static constexpr int kThreads = 256;
  static constexpr int kKeyWarps = 8 / kRows;
  static constexpr int kKeyGroups = kTile / 16 / kKeyWarps;  // of 16 keys, of one warp

  using Keys = KeyTile<kFormat, typename Policy::Page, kTile, kThreads>;
  static constexpr int kStages = Keys::kDirect ? 2 : 1;

  struct Shared {
    alignas(1024) uint8_t queries[kRows * kIndexHeads * kKeyBytes];
    alignas(1024) uint8_t tiles[kStages][kTileBytes];
    uint8_t raw[Keys::kRawBytes + 16];
  };

  __device__ static void Issue(Shared& shared, const KeyPages& keys, int first, int limit, int n) {
    uint8_t* target = Keys::kDirect ? shared.tiles[n % kStages] : shared.raw;
    Keys::Issue(keys, first, limit, threadIdx.x, target);
    CommitCopies();
  }

  // products[i][4 j ...]: keys of group i, heads 8 j ... of the warp's row.
  __device__ static void Multiply(const Shared& shared, const uint8_t* tile, int key, int row,
                                  float (&products)[kKeyGroups][kIndexHeads / 2]) {
    constexpr int kLines = kRows * kIndexHeads;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < kIndexDim / 16; ++k) {
      uint32_t a[kKeyGroups][4];
#pragma unroll
      for (int i = 0; i < kKeyGroups; ++i) {
        LoadMatrices(
            SharedAddress(tile + TileOffset<kTile>(key + i * 16 + lane % 16, 2 * k + lane / 16)),
            a[i]);
      }
#pragma unroll
      for (int j = 0; j < kIndexHeads / 16; ++j) {
        uint32_t b[4];
        const int line = row * kIndexHeads + j * 16 + lane / 16 * 8 + lane % 8;
        LoadMatrices(SharedAddress(shared.queries + TileOffset<kLines>(line, 2 * k + lane / 8 % 2)),
                     b);
#pragma unroll
        for (int i = 0; i < kKeyGroups; ++i) {
          Mma16x8x16(&products[i][8 * j], a[i], b[0], b[1]);
          Mma16x8x16(&products[i][8 * j + 4], a[i], b[2], b[3]);
        }
      }
    }
  }

  __device__ static void ScoreRun(const IndexLogitsParams& params, Shared& shared,
                                  const RowRun& run, int row_begin, int row_end, int key_begin,
                                  int key_end, int& n) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row = warp / kKeyWarps;
    const int key_of_warp = warp % kKeyWarps * kKeyGroups * 16;
    const ScoreRow target = ScoresOf(params, run, row_begin + row);
    float weights[kIndexHeads / 4];
    LoadWeights(params, row_begin + row, row_end, weights);
    const KeyPages keys = PagesOf(params, run.sequence);
    const int end = min(run.limit, key_end);
    if (key_begin < end) Issue(shared, keys, key_begin, run.limit, n);
    for (int key = key_begin; key < end; key += kTile, ++n) {
      uint8_t* tile = shared.tiles[n % kStages];
      WaitCopies<0>();
      __syncthreads();
      if constexpr (!Keys::kDirect) {
        Keys::Finish(shared.raw, threadIdx.x, tile);
        __syncthreads();
      }
      if (key + kTile < end) Issue(shared, keys, key + kTile, run.limit, n + 1);
      float products[kKeyGroups][kIndexHeads / 2] = {};
      Multiply(shared, tile, key_of_warp, row, products);
#pragma unroll
      for (int i = 0; i < kKeyGroups; ++i) {
        const float2 score = ScoreOfHeads<typename Policy::Activation>(products[i], weights);
        const int entry = key + key_of_warp + i * 16 + lane / 4;
        if (lane % 4 == 0) {
          target.Store(entry, score.x);
          target.Store(entry + 8, score.y);
        }
      }
    }
  }

  static void Launch(const IndexLogitsParams& params, CUstream_st* stream);
};

template <EntryFormat kFormat, int kRows, typename Policy>
__global__ void __launch_bounds__(IndexPortable<kFormat, kRows, Policy>::kThreads)
    IndexLogitsPortableKernel(const __grid_constant__ IndexLogitsParams params,
                              int keys_per_block) {
  using Kernel = IndexPortable<kFormat, kRows, Policy>;
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(dynamic_shared);
  const int row_begin = params.first_row + blockIdx.y * kRows;
  const int row_end = min(row_begin + kRows, params.first_row + params.rows);
  const int key_begin = blockIdx.x * keys_per_block;
  bool loaded = false;
  int n = 0;
  for (RowRun run = NextRun(params, row_begin, row_end); run.begin < row_end;
       run = NextRun(params, run.end, row_end)) {
    if (run.limit <= key_begin) continue;
    if (!loaded) LoadQueries<kRows, Kernel::kThreads>(params, row_begin, row_end, shared.queries);
    loaded = true;
    Kernel::ScoreRun(params, shared, run, row_begin, row_end, key_begin, key_begin + keys_per_block,
                     n);
  }
}

template <EntryFormat kFormat, int kRows, typename Policy>
void IndexPortable<kFormat, kRows, Policy>::Launch(const IndexLogitsParams& params,
                                                   CUstream_st* stream) {
  const int row_tiles = (params.rows + kRows - 1) / kRows;
  const int keys_per_block = KeysPerBlock(params.max_entries, row_tiles, kTile);
  const dim3 grid((params.max_entries + keys_per_block - 1) / keys_per_block, row_tiles);
  const auto kernel = IndexLogitsPortableKernel<kFormat, kRows, Policy>;
  CheckCuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
      "cudaFuncSetAttribute");
  kernel<<<grid, kThreads, sizeof(Shared), stream>>>(params, keys_per_block);
  CheckLaunch("IndexLogitsPortable");
}

template <typename Policy>
void LaunchIndexLogitsPortable(const IndexLogitsParams& params, CUstream_st* stream) {
  CheckIndexLogits(params);
  if (params.rows == 0 || params.max_entries == 0) return;
  WithIndexFormat(params.keys.format, [&](auto format) {
    constexpr EntryFormat kFormat = decltype(format)::value;
    if (params.batch.max_rows > 1) return IndexPortable<kFormat, 2, Policy>::Launch(params, stream);
    IndexPortable<kFormat, 1, Policy>::Launch(params, stream);
  });
}

}  // namespace baton::kernels::cuda
