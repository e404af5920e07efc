#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/sparse_attention_plan.h"

// What a piece of work attends, as tiles of 64 candidate slots, and how a slot is found in memory.

namespace baton::kernels::cuda {

inline constexpr int kKvBlocks = kKvDim / 64;

// Where 16-byte piece `piece` of a row lies in a tile of kRows rows.
template <int kRows>
__device__ inline int KvOffset(int row, int piece) {
  return piece / 8 * kRows * 128 + SwizzledOffset(row, piece % 8);
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

// One piece of work: tiles [tile, tile_end) of a row for plan.head_tile heads.
struct AttentionWork {
  int row = 0;
  int head_begin = 0;
  int split = 0;
  int parts = 0;  // of the row
  int tile = 0;
  int tile_end = 0;
};

__device__ inline RowCandidates CandidatesOf(const SparseAttentionParams& params, int row) {
  const BatchView& batch = params.batch;
  RowCandidates c;
  c.sequence = batch.sequence[row];
  c.position = batch.position[row];
  if (c.sequence < 0) return c;
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
__device__ inline int RowOf(const AttentionPlan& plan, int64_t item) {
  return plan.first_row + static_cast<int>(item / plan.splits / plan.head_tiles);
}
__device__ inline AttentionWork WorkOf(const AttentionPlan& plan, const RowCandidates& c,
                                       int64_t item) {
  AttentionWork work;
  work.split = static_cast<int>(item % plan.splits);
  work.head_begin = static_cast<int>(item / plan.splits % plan.head_tiles) * plan.head_tile;
  work.row = RowOf(plan, item);
  if (c.sequence < 0) return work;
  const int begin = c.first / kKvTile;
  const int end = (c.window_slots + c.entries + kKvTile - 1) / kKvTile;
  const int each =
      plan.part_tiles > 0 ? plan.part_tiles : (end - begin + plan.splits - 1) / plan.splits;
  work.parts = (end - begin + each - 1) / each;
  work.tile = begin + work.split * each;
  work.tile_end = min(work.tile + each, end);
  return work;
}
// Where what is left of a part for later lies.
__device__ inline int64_t PartOf(const SparseAttentionParams& params, const AttentionPlan& plan,
                                 int row, int head, int split) {
  return (static_cast<int64_t>(row - plan.first_row) * params.heads + head) * plan.splits + split;
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

// kFp8Packed: a record of 448 codes, 64 to a scale, and 64 channels as BF16; scales lie apart.
inline constexpr int kPackedRecord = 576;
inline constexpr int kPackedPieces = kPackedRecord / 16;
inline constexpr int kPackedCodePieces = 28;  // the first of them; 4 to a scale

// Where a candidate is stored.
struct KvSource {
  const std::byte* data = nullptr;    // null: there is none
  const std::byte* scales = nullptr;  // of packed entries

  // 0 where there are none: a NaN scale would turn a missing row's zeros to NaN.
  __device__ uint64_t Scales() const {
    return scales != nullptr ? *reinterpret_cast<const uint64_t*>(scales) : 0;
  }
};

// Which entry compressed candidate i of a row is; -1 behind the end of its selection.
__device__ inline int EntryOf(const SparseAttentionParams& params, int row, int i) {
  return params.selected != nullptr ? params.selected[static_cast<int64_t>(row) * params.k + i] : i;
}
// The page that an entry of the row's sequence is on.
__device__ inline int PageOf(const SparseAttentionParams& params, const RowCandidates& c,
                             int entry) {
  const int shift = __ffs(params.pool.entries_per_page) - 1;
  return params.batch
      .page_table[static_cast<int64_t>(c.sequence) * params.batch.max_pages + (entry >> shift)];
}
template <EntryFormat kFormat>
__device__ inline KvSource SourceOnPage(const SparseAttentionParams& params, int page, int entry) {
  const int per_page = params.pool.entries_per_page;
  const std::byte* begin = params.pool.data + page * params.pool.page_bytes;
  const int index = entry & (per_page - 1);
  if constexpr (kFormat == EntryFormat::kBf16) return {begin + index * (kKvDim * 2), nullptr};
  return {begin + index * kPackedRecord, begin + per_page * kPackedRecord + index * 8};
}

// The candidate of a slot.
template <EntryFormat kFormat>
__device__ inline KvSource SlotSource(const SparseAttentionParams& params, const RowCandidates& c,
                                      int row, int slot) {
  if (!c.Exists(slot)) return {};
  if (slot < c.window_slots) return {WindowRow(params, c, slot), nullptr};
  const int entry = EntryOf(params, row, slot - c.window_slots);
  if (entry < 0) return {};
  return SourceOnPage<kFormat>(params, PageOf(params, c, entry), entry);
}

// Eight codes times a power of two, twice in `scale`: BF16 values.
__device__ inline Vector16 WidenCodes(uint32_t low, uint32_t high, uint32_t scale) {
  const auto pair = [scale](uint32_t codes) {
    const float2 values = UnpackE4m3(static_cast<uint16_t>(codes));
    return MultiplyPair(PackBf16(values.x, values.y), scale);
  };
  return {pair(low & 0xffffu), pair(low >> 16), pair(high & 0xffffu), pair(high >> 16)};
}

// Puts piece `piece` of a packed record into a tile of kRows rows.
template <int kRows>
__device__ inline void StorePackedPiece(uint8_t* tile, int row, int piece, const Vector16& value,
                                        uint64_t scales) {
  if (piece >= kPackedCodePieces) {
    Store16(tile + KvOffset<kRows>(row, piece + kPackedCodePieces), value);
    return;
  }
  const uint32_t scale =
      SplatBf16(DecodeE8m0(static_cast<uint32_t>(scales >> (piece / 4 * 8)) & 0xffu));
  Store16(tile + KvOffset<kRows>(row, 2 * piece), WidenCodes(value.x, value.y, scale));
  Store16(tile + KvOffset<kRows>(row, 2 * piece + 1), WidenCodes(value.z, value.w, scale));
}

}  // namespace baton::kernels::cuda
