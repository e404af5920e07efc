#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/sparse_attention.h"

// What one row attends, as tiles of 64 candidate slots, and how a slot is found in memory.

namespace baton::kernels::cuda {

inline constexpr int kKvDim = 512;
inline constexpr int kKvTile = 64;    // candidates of a tile
inline constexpr int kHeadTile = 64;  // heads of a block
inline constexpr int kKvBlocks = kKvDim / 64;
inline constexpr int kKvBlockBytes = kKvTile * 128;  // 64 channels of a tile
inline constexpr int kKvTileBytes = kKvBlocks * kKvBlockBytes;

// Slots [0, window_slots) are the window, oldest first and filled up in front so that it ends with
// a tile; compressed entries follow. So no tile mixes the two, whose formats differ.
struct RowCandidates {
  int row;
  int sequence;
  int position;
  int window_slots;  // the window rounded up to tiles
  int first;         // slot of the oldest window row there is
  int entries;       // compressed entries

  __device__ int FirstTile() const { return first / kKvTile; }
  __device__ int EndTile() const {
    return window_slots / kKvTile + (entries + kKvTile - 1) / kKvTile;
  }
  __device__ bool IsWindowTile(int tile) const { return tile < window_slots / kKvTile; }
  __device__ bool Exists(int slot) const { return slot >= first && slot < window_slots + entries; }
};

// `entries_selected`: how many leading elements of the row's selection are not -1; unused without
// one.
__device__ inline RowCandidates CandidatesOf(const SparseAttentionParams& params, int row,
                                             int entries_selected) {
  RowCandidates c;
  c.row = row;
  c.sequence = params.batch.sequence[row];
  c.position = params.batch.position[row];
  c.window_slots = (params.window + kKvTile - 1) / kKvTile * kKvTile;
  c.first = c.window_slots - min(params.window, c.position + 1);
  c.entries = 0;
  if (params.ratio > 0) {
    c.entries = params.selected != nullptr ? entries_selected : (c.position + 1) / params.ratio;
  }
  return c;
}

// Window row of a slot that exists.
__device__ inline const std::byte* WindowRow(const SparseAttentionParams& params,
                                             const RowCandidates& c, int slot) {
  const int position = c.position - (c.window_slots - 1 - slot);
  const BatchView& batch = params.batch;
  const int start = batch.start[c.sequence];
  const BFloat16* source;
  if (position >= start) {
    source = params.chunk +
             static_cast<int64_t>(batch.row_begin[c.sequence] + position - start) * kKvDim;
  } else {
    source = params.rings.data + batch.slot[c.sequence] * params.rings.slot_stride +
             static_cast<int64_t>(position % params.rings.rows) * params.rings.width;
  }
  return reinterpret_cast<const std::byte*>(source);
}

// Where compressed candidate i of a row is stored.
struct EntryPlace {
  const std::byte* page;
  int index;  // in the page
};
__device__ inline EntryPlace PlaceOf(const SparseAttentionParams& params, const RowCandidates& c,
                                     int i) {
  const int entry =
      params.selected != nullptr ? params.selected[static_cast<int64_t>(c.row) * params.k + i] : i;
  const int per_page = params.pool.entries_per_page;
  const int64_t page =
      params.batch.page_table[static_cast<int64_t>(c.sequence) * params.batch.max_pages +
                              (entry >> (__ffs(per_page) - 1))];
  return {params.pool.data + page * params.pool.page_bytes, entry & (per_page - 1)};
}

__device__ inline int KvOffset(int row, int piece) {
  return piece / 8 * kKvBlockBytes + SwizzledOffset(row, piece % 8);
}

}  // namespace baton::kernels::cuda
