#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/compressor.h"
#include "kernels/cuda/batch.h"
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/index_logits.h"
#include "kernels/index_select.h"

// What both variants of the index logits share: which rows and keys a block scores, and how a dot
// product becomes a score.

namespace baton::kernels::cuda {

inline constexpr int kIndexHeads = 64;  // of a tile; models with fewer are padded with zeros

// max(0, dot), but NaN for NaN. A policy for the same reason as PackedPage.
struct Relu {
  __device__ static float Of(float dot) {
    float result;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(dot));
    return result;
  }
};

struct IndexPolicy {
  using Page = PackedPage;
  using Activation = Relu;
};

__device__ inline int VisibleEntries(const BatchView& batch, int row) {
  return (batch.position[row] + 1) / kCsaRatio;
}

// Consecutive rows of one sequence inside a tile of rows: only these share keys.
struct RowRun {
  int begin;
  int end;
  int sequence;
  int limit;  // entries that the last row sees, and thus any of them
};

// The first run at or after `row` that has something to score; begin == tile_end: none.
__device__ inline RowRun NextRun(const IndexLogitsParams& params, int row, int tile_end) {
  const BatchView& batch = params.batch;
  while (row < tile_end) {
    RowRun run = {row, row + 1, batch.sequence[row], 0};
    while (run.end < tile_end && batch.sequence[run.end] == run.sequence) ++run.end;
    if (run.sequence >= 0) {
      run.limit = VisibleEntries(batch, run.end - 1);
      if (run.limit > params.min_entries) return run;
    }
    row = run.end;
  }
  return {tile_end, tile_end, -1, 0};
}

__device__ inline KeyPages PagesOf(const IndexLogitsParams& params, int sequence) {
  return {params.keys.data, params.keys.page_bytes, params.keys.entries_per_page,
          __ffs(params.keys.entries_per_page) - 1,
          params.batch.page_table + static_cast<int64_t>(sequence) * params.batch.max_pages};
}

// Queries of rows [row, row + kRows) to shared memory: two blocks of 64 channels, one line a head;
// zeros for rows from `row_end` on and for heads that the model does not have.
template <int kRows, int kThreads>
__device__ inline void LoadQueries(const IndexLogitsParams& params, int row, int row_end,
                                   uint8_t* tile) {
  constexpr int kLines = kRows * kIndexHeads;
  for (int i = threadIdx.x; i < kLines * 16; i += kThreads) {
    const int line = i / 16;
    const int head = line % kIndexHeads;
    const int64_t source_row = row + line / kIndexHeads;
    Vector16 value = {0, 0, 0, 0};
    if (source_row < row_end && head < params.heads) {
      value = Load16(params.q + (source_row * params.heads + head) * kIndexDim + i % 16 * 8);
    }
    Store16(tile + TileOffset<kLines>(line, i % 16), value);
  }
}

// Weights of the heads 8 j + 2 (lane % 4) + {0, 1} of a row: those whose products an accumulator
// fragment holds (device/mma.cuh, device/wgmma.cuh).
__device__ inline void LoadWeights(const IndexLogitsParams& params, int row, int row_end,
                                   float (&weights)[kIndexHeads / 4]) {
#pragma unroll
  for (int i = 0; i < kIndexHeads / 4; ++i) {
    const int head = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
    const bool exists = row < row_end && head < params.heads;
    const int64_t index = static_cast<int64_t>(row) * params.heads + head;
    weights[i] = exists ? __uint_as_float(uint32_t{params.w[index].bits} << 16) : 0.0f;
  }
}

// Scores of two keys and one row from the products of all its heads, spread over four lanes; all
// of these receive both.
template <typename Activation>
__device__ inline float2 ScoreOfHeads(const float* products, const float* weights) {
  float2 score = {0, 0};
#pragma unroll
  for (int i = 0; i < kIndexHeads / 8; ++i) {
    score.x = fmaf(Activation::Of(products[4 * i]), weights[2 * i], score.x);
    score.x = fmaf(Activation::Of(products[4 * i + 1]), weights[2 * i + 1], score.x);
    score.y = fmaf(Activation::Of(products[4 * i + 2]), weights[2 * i], score.y);
    score.y = fmaf(Activation::Of(products[4 * i + 3]), weights[2 * i + 1], score.y);
  }
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    score.x += __shfl_xor_sync(0xffffffffu, score.x, distance);
    score.y += __shfl_xor_sync(0xffffffffu, score.y, distance);
  }
  return score;
}

// Where the scores of a row go, and how many: none for rows outside the run.
struct ScoreRow {
  float* scores;
  int limit;

  __device__ void Store(int entry, float score) const {
    if (entry < limit) scores[entry] = score;
  }
};
__device__ inline ScoreRow ScoresOf(const IndexLogitsParams& params, const RowRun& run, int row) {
  if (row < run.begin || row >= run.end) return {nullptr, 0};
  return {params.scores + (row - params.first_row) * params.stride,
          VisibleEntries(params.batch, row)};
}

inline void CheckIndexLogits(const IndexLogitsParams& params) {
  BATON_CHECK(params.heads > 0 && params.heads <= kIndexHeads) << "index heads " << params.heads;
  BATON_CHECK(params.keys.head_dim == kIndexDim) << "index key width " << params.keys.head_dim;
  BATON_CHECK(std::has_single_bit(static_cast<unsigned>(params.keys.entries_per_page)))
      << "entries a page " << params.keys.entries_per_page;
  BATON_CHECK(params.stride >= params.max_entries) << "stride " << params.stride;
  BATON_CHECK(params.first_row >= 0 && params.first_row + params.rows <= params.batch.rows)
      << "rows " << params.first_row << " + " << params.rows << " of " << params.batch.rows;
}

// Calls launch(std::integral_constant<EntryFormat, ...>) with the pool's format.
template <typename Launch>
void WithIndexFormat(EntryFormat format, Launch&& launch) {
  switch (format) {
    case EntryFormat::kBf16:
      return launch(std::integral_constant<EntryFormat, EntryFormat::kBf16>());
    case EntryFormat::kFp8Index:
      return launch(std::integral_constant<EntryFormat, EntryFormat::kFp8Index>());
    case EntryFormat::kFp4Index:
      return launch(std::integral_constant<EntryFormat, EntryFormat::kFp4Index>());
    case EntryFormat::kFp8Packed:
      BATON_CHECK(false) << "packed KV entries hold no index keys";
  }
}

// Keys of one block: enough blocks for several waves, and enough keys for a block to be worth its
// start. A multiple of kTile.
inline int KeysPerBlock(int max_entries, int row_tiles, int kTile) {
  constexpr int kBlocksWanted = 1056;  // eight for each multiprocessor of the largest cards
  const int64_t tiles = (max_entries + kTile - 1) / kTile;
  const int64_t wanted = (tiles * row_tiles + kBlocksWanted - 1) / kBlocksWanted;
  const int64_t least = 512 / kTile;
  const int64_t most = 4096 / kTile;
  return static_cast<int>(wanted < least ? least : wanted > most ? most : wanted) * kTile;
}

}  // namespace baton::kernels::cuda
