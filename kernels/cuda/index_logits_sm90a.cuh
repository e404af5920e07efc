#pragma once

#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/index_rows.cuh"
#include "kernels/runtime/error.h"

// Index logits by wgmma. A block scores kRows rows against a range of keys: one warpgroup brings
// tiles of 64 keys, two take turns to multiply them (M = keys) with the heads of all rows (N), so
// that one sums up heads while the other keeps the tensor cores busy. The sum over heads stays
// within four lanes because heads are N.

namespace baton::kernels::cuda {

template <EntryFormat kFormat, int kRows, typename Policy>
struct IndexSm90a {
  static constexpr int kTile = 64;
  static constexpr int kTileBytes = kTile * kKeyBytes;
  static constexpr int kGroup = 128;  // threads of a warpgroup
  static constexpr int kThreads = 3 * kGroup;
  static constexpr int kBlocks = kRows == 1 ? 2 : 1;  // of a multiprocessor

  using Keys = KeyTile<kFormat, typename Policy::Page, kTile, kGroup>;
  // Bytes in flight decide when rows are few, so copies of several tiles are kept going: of BF16
  // into the stages themselves, of other formats into as many buffers of raw bytes.
  static constexpr int kStages = Keys::kDirect ? (kRows == 1 ? 5 : 8) : 2;
  static constexpr int kLag = 4;  // tiles from Issue to Finish
  static constexpr int kRawStages = Keys::kDirect ? 0 : kLag + 1;

  struct Shared {
    alignas(1024) uint8_t queries[kRows * kIndexHeads * kKeyBytes];
    alignas(1024) uint8_t tiles[kStages][kTileBytes];
    uint8_t raw[kRawStages * Keys::kRawBytes + 16];
    StageRing<kStages> ring;
  };

  __device__ static int TileEnd(const RowRun& run, int key_end) { return min(run.limit, key_end); }

  // Use n of the ring is the n-th tile of the block, over all its runs.
  struct Producer {
    Shared& shared;
    int thread;
    int issued = 0;

    __device__ uint8_t* Raw(int n) { return shared.raw + n % (kLag + 1) * Keys::kRawBytes; }
    __device__ uint8_t* Tile(int n) { return shared.tiles[n % kStages]; }

    // Fencing is left to the readers: a writer's fence would wait for all its copies.
    __device__ void Issue(const KeyPages& keys, int first, int limit) {
      if constexpr (Keys::kDirect) {
        shared.ring.WaitEmpty(issued);
        Keys::Issue(keys, first, limit, thread, Tile(issued));
        ArriveWhenCopied(&shared.ring.full[issued % kStages]);
      } else {
        Keys::Issue(keys, first, limit, thread, Raw(issued));
        CommitCopies();
        if (issued >= kLag) {
          WaitCopies<kLag>();
          Finish(issued - kLag);
        }
      }
      ++issued;
    }
    __device__ void FinishAll() {
      if constexpr (!Keys::kDirect) {
        WaitCopies<0>();
        for (int n = max(0, issued - kLag); n < issued; ++n) Finish(n);
      }
    }
    __device__ void Finish(int n) {
      shared.ring.WaitEmpty(n);
      Keys::Finish(Raw(n), thread, Tile(n));
      shared.ring.ArriveFull(n);
    }
  };

  __device__ static void Produce(const IndexLogitsParams& params, Shared& shared, int row_begin,
                                 int row_end, int key_begin, int key_end) {
    Producer producer = {shared, static_cast<int>(threadIdx.x) % kGroup};
    for (RowRun run = NextRun(params, row_begin, row_end); run.begin < row_end;
         run = NextRun(params, run.end, row_end)) {
      const KeyPages keys = PagesOf(params, run.sequence);
      for (int key = key_begin; key < TileEnd(run, key_end); key += kTile) {
        producer.Issue(keys, key, run.limit);
      }
    }
    producer.FinishAll();
  }

  // The groups issue in turns: left to themselves both would multiply, then both sum up.
  __device__ static void AwaitTurn(int group) { SyncThreads(1 + group, 2 * kGroup); }
  __device__ static void PassTurn(int group) { ArriveThreads(2 - group, 2 * kGroup); }

  __device__ static void Multiply(const Shared& shared, const uint8_t* tile, int group,
                                  float (&products)[kRows * 32]) {
    constexpr int kSlices = kIndexDim / 16;
    constexpr int kLines = kRows * kIndexHeads;
    const uint64_t a = ChannelsSummed(UniformSharedAddress(tile));
    const uint64_t b = ChannelsSummed(UniformSharedAddress(shared.queries));
    AwaitTurn(group);
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kSlices; ++k) {
      Wgmma<false>(products, Advanced(a, k / 4 * kTile * 128 + k % 4 * 32),
                   Advanced(b, k / 4 * kLines * 128 + k % 4 * 32), k > 0);
    }
    WgmmaCommit();
    PassTurn(group);
    WgmmaWait<0>();
  }

  __device__ static void Consume(const IndexLogitsParams& params, Shared& shared, int row_begin,
                                 int row_end, int key_begin, int key_end) {
    const int group = threadIdx.x / kGroup - 1;
    const int lane = threadIdx.x % 32;
    const int key_of_lane = threadIdx.x % kGroup / 32 * 16 + lane / 4;
    float weights[kRows][kIndexHeads / 4];
#pragma unroll
    for (int i = 0; i < kRows; ++i) LoadWeights(params, row_begin + i, row_end, weights[i]);
    if (group == 1) PassTurn(group);
    int n = 0;
    for (RowRun run = NextRun(params, row_begin, row_end); run.begin < row_end;
         run = NextRun(params, run.end, row_end)) {
      const ScoreRow target =
          lane % 4 < kRows ? ScoresOf(params, run, row_begin + lane % 4) : ScoreRow{nullptr, 0};
      for (int key = key_begin; key < TileEnd(run, key_end); key += kTile, ++n) {
        if (n % 2 != group) continue;
        float products[kRows * 32];
        shared.ring.WaitFull(n);
        FenceForTensorCores();
        Multiply(shared, shared.tiles[n % kStages], group, products);
        if (lane == 0) shared.ring.ArriveEmpty(n);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const float2 score =
              ScoreOfHeads<typename Policy::Activation>(products + i * 32, weights[i]);
          if (lane % 4 == i) {
            target.Store(key + key_of_lane, score.x);
            target.Store(key + key_of_lane + 8, score.y);
          }
        }
      }
    }
  }

  static void Launch(const IndexLogitsParams& params, CUstream_st* stream);
};

template <EntryFormat kFormat, int kRows, typename Policy>
__global__ void __launch_bounds__(IndexSm90a<kFormat, kRows, Policy>::kThreads,
                                  IndexSm90a<kFormat, kRows, Policy>::kBlocks)
    IndexLogitsSm90aKernel(const __grid_constant__ IndexLogitsParams params, int keys_per_block) {
  AwaitPredecessors();
  using Kernel = IndexSm90a<kFormat, kRows, Policy>;
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(dynamic_shared);
  const int row_begin = params.first_row + blockIdx.y * kRows;
  const int row_end = min(row_begin + kRows, params.first_row + params.rows);
  const int key_begin = blockIdx.x * keys_per_block;
  const int key_end = key_begin + keys_per_block;

  int most = 0;
  for (RowRun run = NextRun(params, row_begin, row_end); run.begin < row_end;
       run = NextRun(params, run.end, row_end)) {
    most = max(most, run.limit);
  }
  if (most <= key_begin) return;

  if (threadIdx.x == 0) shared.ring.Init(Kernel::kGroup, 4);
  LoadQueries<kRows, Kernel::kThreads>(params, row_begin, row_end, shared.queries);
  FenceForTensorCores();
  __syncthreads();

  // The compiler grants registers by role only where each role is one branch.
  if (threadIdx.x < Kernel::kGroup) {
    if constexpr (kRows == 4) ReleaseRegisters<40>();
    Kernel::Produce(params, shared, row_begin, row_end, key_begin, key_end);
  } else {
    if constexpr (kRows == 4) ClaimRegisters<232>();
    Kernel::Consume(params, shared, row_begin, row_end, key_begin, key_end);
  }
}

template <EntryFormat kFormat, int kRows, typename Policy>
void IndexSm90a<kFormat, kRows, Policy>::Launch(const IndexLogitsParams& params,
                                                CUstream_st* stream) {
  const int row_tiles = (params.rows + kRows - 1) / kRows;
  const int keys_per_block = KeysPerBlock(params.max_entries, row_tiles, kTile);
  const dim3 grid((params.max_entries + keys_per_block - 1) / keys_per_block, row_tiles);
  const auto kernel = IndexLogitsSm90aKernel<kFormat, kRows, Policy>;
  CheckCuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
      "cudaFuncSetAttribute");
  LaunchClosely(kernel, {grid, kThreads, sizeof(Shared)}, stream, params, keys_per_block);
  CheckLaunch("IndexLogitsSm90a");
}

// Rows a tile: as many as a sequence fills, since rows of different sequences share nothing.
template <typename Policy>
void LaunchIndexLogitsSm90a(const IndexLogitsParams& params, CUstream_st* stream) {
  CheckIndexLogits(params);
  if (params.rows == 0 || params.max_entries == 0) return;
  WithIndexFormat(params.keys.format, [&](auto format) {
    constexpr EntryFormat kFormat = decltype(format)::value;
    if (params.batch.max_rows > 2) return IndexSm90a<kFormat, 4, Policy>::Launch(params, stream);
    if (params.batch.max_rows == 2) return IndexSm90a<kFormat, 2, Policy>::Launch(params, stream);
    IndexSm90a<kFormat, 1, Policy>::Launch(params, stream);
  });
}

}  // namespace baton::kernels::cuda
