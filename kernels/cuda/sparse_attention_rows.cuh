#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/sparse_attention_plan.h"

// What a piece of work attends, as tiles of 64 candidate slots, and how a slot is found in memory.

namespace baton::kernels::cuda {

inline constexpr int kKvDim = 512;
inline constexpr int kKvTile = 64;    // candidates of a tile
inline constexpr int kHeadTile = 64;  // heads of a block
inline constexpr int kKvBlocks = kKvDim / 64;
inline constexpr int kKvBlockBytes = kKvTile * 128;  // 64 channels of a tile
inline constexpr int kKvTileBytes = kKvBlocks * kKvBlockBytes;

__device__ inline int KvOffset(int row, int piece) {
  return piece / 8 * kKvBlockBytes + SwizzledOffset(row, piece % 8);
}

// Candidates of one row, as slots: [0, window_slots) are the window, oldest first and filled up in
// front so that it ends with a tile; compressed entries follow. So no tile mixes the two, whose
// formats differ.
struct RowCandidates {
  int sequence = -1;
  int window_slots = 0;
  int first = 0;    // slot of the oldest window row there is
  int entries = 0;  // compressed entries, at most
  int position = 0;
  int start = 0;                    // of the sequence: older window rows are in its ring
  const BFloat16* chunk = nullptr;  // window row of position 0, were it in this step
  const BFloat16* ring = nullptr;

  __device__ bool Exists(int slot) const { return slot >= first && slot < window_slots + entries; }
};

// One piece of work: tiles [tile, tile_end) of a row for 64 heads.
struct AttentionWork {
  int row;
  int head_begin;
  int split;
  int tile;
  int tile_end;
};

__device__ inline RowCandidates CandidatesOf(const SparseAttentionParams& params, int row) {
  const BatchView& batch = params.batch;
  RowCandidates c;
  c.sequence = batch.sequence[row];
  if (c.sequence < 0) return c;
  c.position = batch.position[row];
  c.start = batch.start[c.sequence];
  c.window_slots = (params.window + kKvTile - 1) / kKvTile * kKvTile;
  c.first = c.window_slots - min(params.window, c.position + 1);
  if (params.ratio > 0) {
    const int visible = (c.position + 1) / params.ratio;
    c.entries = params.selected != nullptr ? min(visible, params.k) : visible;
  }
  c.chunk = params.chunk + (int64_t{batch.row_begin[c.sequence]} - c.start) * kKvDim;
  c.ring = params.rings.data + batch.slot[c.sequence] * params.rings.slot_stride;
  return c;
}

// Piece number `item` of the plan; no tiles where the row is padded or too short for the split.
__device__ inline AttentionWork WorkOf(const AttentionPlan& plan, const RowCandidates& c,
                                       int64_t item) {
  AttentionWork work;
  work.split = static_cast<int>(item % plan.splits);
  work.head_begin = static_cast<int>(item / plan.splits % plan.head_tiles) * kHeadTile;
  work.row = static_cast<int>(item / plan.splits / plan.head_tiles);
  const int begin = c.first / kKvTile;
  const int end = (c.window_slots + c.entries + kKvTile - 1) / kKvTile;
  const int each = (end - begin + plan.splits - 1) / plan.splits;
  work.tile = begin + work.split * each;
  work.tile_end = c.sequence < 0 ? work.tile : min(work.tile + each, end);
  return work;
}
__device__ inline int RowOf(const AttentionPlan& plan, int64_t item) {
  return static_cast<int>(item / plan.splits / plan.head_tiles);
}

// Window row of a slot that exists.
__device__ inline const std::byte* WindowRow(const SparseAttentionParams& params,
                                             const RowCandidates& c, int slot) {
  const int position = c.position - (c.window_slots - 1 - slot);
  const BFloat16* row =
      position >= c.start
          ? c.chunk + static_cast<int64_t>(position) * kKvDim
          : c.ring + static_cast<int64_t>(position % params.rings.rows) * params.rings.width;
  return reinterpret_cast<const std::byte*>(row);
}

// Where compressed candidate i of a row is stored; page null where the selection ends before it.
struct EntryPlace {
  const std::byte* page;
  int index;  // in the page
};
__device__ inline EntryPlace PlaceOf(const SparseAttentionParams& params, const RowCandidates& c,
                                     int row, int i) {
  int entry = i;
  if (params.selected != nullptr) {
    entry = params.selected[static_cast<int64_t>(row) * params.k + i];
    if (entry < 0) return {nullptr, 0};
  }
  const int per_page = params.pool.entries_per_page;
  const int64_t page =
      params.batch.page_table[static_cast<int64_t>(c.sequence) * params.batch.max_pages +
                              (entry >> (__ffs(per_page) - 1))];
  return {params.pool.data + page * params.pool.page_bytes, entry & (per_page - 1)};
}

}  // namespace baton::kernels::cuda
