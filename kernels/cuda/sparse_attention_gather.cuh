#pragma once

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/sparse_attention_rows.cuh"

// One warpgroup that brings tiles of candidates to shared memory as BF16.

namespace baton::kernels::cuda {

inline constexpr int kGatherThreads = 128;
inline constexpr int kKvStages = 2;

struct GatherShared {
  const std::byte* source[2][kKvTile];  // null: zeros
  uint64_t scales[2][kKvTile];          // of packed entries
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
  const RowCandidates& candidates;
  GatherShared& shared;
  int thread;

  // Sources of a tile to shared.source[n % 2]. Two dependent loads: before waiting for a stage.
  __device__ void Locate(int tile, int n) {
    if (thread < kKvTile) {
      const int slot = tile * kKvTile + thread;
      const std::byte* source = nullptr;
      shared.scales[n % 2][thread] = 0;  // a NaN scale would turn the zeros of a missing row to NaN
      if (candidates.Exists(slot)) {
        if (candidates.IsWindowTile(tile)) {
          source = WindowRow(params, candidates, slot);
        } else {
          source = LocateEntry(slot - candidates.window_slots, n);
        }
      }
      shared.source[n % 2][thread] = source;
    }
    SyncThreads(kBarrier, kGatherThreads);
  }

  // BF16 rows go straight to their places; `full` counts when they have landed.
  __device__ void CopyRows(int n, uint8_t* tile, uint64_t* full) {
    const int piece = thread % 64;
#pragma unroll 8
    for (int row = thread / 64; row < kKvTile; row += kGatherThreads / 64) {
      const std::byte* source = shared.source[n % 2][row];
      const bool exists = source != nullptr;
      CopyAsync16(SharedAddress(tile + KvOffset(row, piece)),
                  exists ? static_cast<const void*>(source + piece * 16) : params.q, exists);
    }
    ArriveWhenCopied(full);
  }

  // Packed records wait in registers until their stage is free.
  struct Records {
    Vector16 pieces[kPackedRows][kPackedSteps];
  };
  __device__ int PackedRow(int i) const {
    return thread / kPackedLanes + i * (kGatherThreads / kPackedLanes);
  }
  __device__ void LoadRecords(int n, Records& records) const {
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
  __device__ void StoreRecords(int n, const Records& records, uint8_t* tile) const {
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
          Store16(tile + KvOffset(row, piece + kPackedCodeSteps * kPackedLanes), codes);
          continue;
        }
        const float scale = DecodeE8m0(static_cast<uint32_t>(scales >> (8 * step)) & 0xffu);
        Store16(tile + KvOffset(row, 2 * piece), Widened(codes.x, codes.y, scale));
        Store16(tile + KvOffset(row, 2 * piece + 1), Widened(codes.z, codes.w, scale));
      }
    }
  }

 private:
  static constexpr int kBarrier = 3;

  __device__ const std::byte* LocateEntry(int i, int n) {
    const EntryPlace place = PlaceOf(params, candidates, i);
    if constexpr (kFormat == EntryFormat::kBf16) {
      return place.page + place.index * (kKvDim * 2);
    } else {
      const std::byte* scales = place.page + params.pool.entries_per_page * kPackedRecord;
      shared.scales[n % 2][thread] = *reinterpret_cast<const uint64_t*>(scales + place.index * 8);
      return place.page + place.index * kPackedRecord;
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
