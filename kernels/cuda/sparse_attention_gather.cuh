#pragma once

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/sparse_attention_rows.cuh"

// One warpgroup that brings queries and tiles of candidates to shared memory as BF16, ahead of
// those who use them.

namespace baton::kernels::cuda {

inline constexpr int kGatherThreads = 128;
inline constexpr int kKvStages = 2;

struct GatherShared {
  alignas(1024) uint8_t q[kKvTileBytes];  // 64 heads
  alignas(1024) uint8_t tiles[kKvStages][kKvTileBytes];
  const std::byte* source[2][kKvTile];       // of a tile's rows; null: zeros
  uint64_t scales[2][kKvTile];               // of packed entries
  uint32_t exists[kKvStages][kKvTile / 32];  // which rows of a tile are candidates
  StageRing<kKvStages> ring;
  StageRing<1> q_ring;

  // Copies arrive with each gathering thread, `exists` with one lane of the warps that write it.
  __device__ void Init(int consumers) {
    ring.Init(kGatherThreads + kKvTile / 32, consumers);
    q_ring.Init(kGatherThreads, consumers);
  }
};

// kFp8Packed: four threads share two records. Piece 4 i + lane of a record is theirs at step i; the
// 64 codes of a step have one scale, and the last two steps are the channels kept as BF16.
inline constexpr int kPackedRecord = 576;
inline constexpr int kPackedLanes = 4;
inline constexpr int kPackedRows = kKvTile * kPackedLanes / kGatherThreads;  // of a thread
inline constexpr int kPackedSteps = kPackedRecord / 16 / kPackedLanes;
inline constexpr int kPackedCodeSteps = 7;

template <EntryFormat kFormat>
struct KvGather {
  const SparseAttentionParams& params;
  GatherShared& shared;
  int thread;
  int n = 0;  // uses of the ring so far

  // What a thread finds out about one row of a tile before the tile's turn: two dependent loads.
  struct Location {
    const std::byte* source = nullptr;
    uint64_t scales = 0;  // a NaN scale would turn the zeros of a missing row to NaN
  };
  __device__ Location Locate(const RowCandidates& c, const AttentionWork& work, int tile) const {
    Location location;
    const int slot = tile * kKvTile + thread;
    if (thread >= kKvTile || tile >= work.tile_end || !c.Exists(slot)) return location;
    if (slot < c.window_slots) {
      location.source = WindowRow(params, c, slot);
      return location;
    }
    const EntryPlace place = PlaceOf(params, c, work.row, slot - c.window_slots);
    if (place.page == nullptr) return location;
    if constexpr (kFormat == EntryFormat::kBf16) {
      location.source = place.page + place.index * (kKvDim * 2);
    } else {
      const std::byte* scales = place.page + params.pool.entries_per_page * kPackedRecord;
      location.scales = *reinterpret_cast<const uint64_t*>(scales + place.index * 8);
      location.source = place.page + place.index * kPackedRecord;
    }
    return location;
  }

  __device__ void CopyQueries(const AttentionWork& work, int use) {
    shared.q_ring.WaitEmpty(use);
    constexpr int kPieces = kKvDim / 8;
    const BFloat16* q = params.q + static_cast<int64_t>(work.row) * params.heads * kKvDim;
#pragma unroll 8
    for (int i = thread; i < kHeadTile * kPieces; i += kGatherThreads) {
      const int head = i / kPieces;
      const bool exists = work.head_begin + head < params.heads;
      const BFloat16* source = q + int64_t{work.head_begin + head} * kKvDim + i % kPieces * 8;
      CopyAsync16(SharedAddress(shared.q + KvOffset(head, i % kPieces)), exists ? source : params.q,
                  exists);
    }
    ArriveWhenCopied(&shared.q_ring.full[0]);
  }

  // The next tile, whose rows `location` names.
  __device__ void Bring(const RowCandidates& c, int tile, const Location& location) {
    if (thread < kKvTile) {
      shared.source[n % 2][thread] = location.source;
      shared.scales[n % 2][thread] = location.scales;
    }
    SyncThreads(kBarrier, kGatherThreads);
    if (kFormat == EntryFormat::kBf16 || tile * kKvTile < c.window_slots) {
      shared.ring.WaitEmpty(n);
      CopyRows();
    } else {
      if constexpr (kFormat != EntryFormat::kBf16) {
        Records records;
        LoadRecords(records);
        shared.ring.WaitEmpty(n);
        StoreRecords(records);
        shared.ring.ArriveFull(n);
      }
    }
    if (thread < kKvTile) {
      const uint32_t exists = __ballot_sync(0xffffffffu, location.source != nullptr);
      if (thread % 32 == 0) {
        shared.exists[n % kKvStages][thread / 32] = exists;
        shared.ring.ArriveFull(n);
      }
    }
    ++n;
  }

 private:
  static constexpr int kBarrier = 3;

  __device__ uint8_t* Tile() const { return shared.tiles[n % kKvStages]; }

  // BF16 rows go straight to their places, eight addresses at a time.
  __device__ void CopyRows() const {
    constexpr int kAtOnce = 8;
    constexpr int kRowsAtOnce = kGatherThreads / 64;
    const int piece = thread % 64;
    for (int first = thread / 64; first < kKvTile; first += kAtOnce * kRowsAtOnce) {
      const std::byte* sources[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sources[i] = shared.source[n % 2][first + i * kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const bool exists = sources[i] != nullptr;
        const void* source = exists ? static_cast<const void*>(sources[i] + piece * 16) : params.q;
        CopyAsync16(SharedAddress(Tile() + KvOffset(first + i * kRowsAtOnce, piece)), source,
                    exists);
      }
    }
    ArriveWhenCopied(&shared.ring.full[n % kKvStages]);
  }

  // Packed records wait in registers until their stage is free.
  struct Records {
    Vector16 pieces[kPackedRows][kPackedSteps];
  };
  __device__ int PackedRow(int i) const {
    return thread / kPackedLanes + i * (kGatherThreads / kPackedLanes);
  }
  __device__ void LoadRecords(Records& records) const {
#pragma unroll
    for (int i = 0; i < kPackedRows; ++i) {
      const std::byte* source = shared.source[n % 2][PackedRow(i)];
#pragma unroll
      for (int step = 0; step < kPackedSteps; ++step) {
        Vector16& piece = records.pieces[i][step];
        piece = {0, 0, 0, 0};
        const int offset = (step * kPackedLanes + thread % kPackedLanes) * 16;
        if (source != nullptr) piece = Load16(source + offset);
      }
    }
  }
  __device__ void StoreRecords(const Records& records) const {
    const int lane = thread % kPackedLanes;
#pragma unroll
    for (int i = 0; i < kPackedRows; ++i) {
      const int row = PackedRow(i);
      const uint64_t scales = shared.scales[n % 2][row];
#pragma unroll
      for (int step = 0; step < kPackedSteps; ++step) {
        const Vector16& codes = records.pieces[i][step];
        const int piece = step * kPackedLanes + lane;
        if (step >= kPackedCodeSteps) {
          Store16(Tile() + KvOffset(row, piece + kPackedCodeSteps * kPackedLanes), codes);
          continue;
        }
        const float scale = DecodeE8m0(static_cast<uint32_t>(scales >> (8 * step)) & 0xffu);
        Store16(Tile() + KvOffset(row, 2 * piece), Widened(codes.x, codes.y, scale));
        Store16(Tile() + KvOffset(row, 2 * piece + 1), Widened(codes.z, codes.w, scale));
      }
    }
  }

  // Eight codes times a power of two: BF16 values.
  __device__ static Vector16 Widened(uint32_t low, uint32_t high, float scale) {
    const auto pair = [scale](uint32_t codes) {
      const float2 values = UnpackE4m3(static_cast<uint16_t>(codes));
      return PackBf16(values.x * scale, values.y * scale);
    };
    return {pair(low & 0xffffu), pair(low >> 16), pair(high & 0xffffu), pair(high >> 16)};
  }
};

}  // namespace baton::kernels::cuda
