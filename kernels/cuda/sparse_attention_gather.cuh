#pragma once

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/sparse_attention_rows.cuh"

// One warpgroup that brings queries and tiles of candidates to shared memory as BF16, ahead of
// those who use them.

namespace baton::kernels::cuda {

inline constexpr int kGatherThreads = 128;
inline constexpr int kKvStages = 2;
inline constexpr int kHeadTile = 64;                 // heads of a block
inline constexpr int kKvBlockBytes = kKvTile * 128;  // 64 channels of a tile
inline constexpr int kKvTileBytes = kKvBlocks * kKvBlockBytes;
static_assert(kHeadTile == kKvTile);  // queries lie as candidates do

struct GatherShared {
  alignas(1024) uint8_t q[kKvTileBytes];  // 64 heads
  alignas(1024) uint8_t tiles[kKvStages][kKvTileBytes];
  const std::byte* source[2][kKvTile];       // of a tile's rows; null: zeros
  uint64_t scales[2][kKvTile];               // of packed entries
  uint32_t exists[kKvStages][kKvTile / 32];  // which rows of a tile are candidates
  AttentionWork work;                        // that `q` belongs to; no tiles: the end
  float sinks[kHeadTile];
  StageRing<kKvStages> ring;
  StageRing<1> q_ring;

  // Copies arrive with each gathering thread, `exists` with one lane of the warps that write it,
  // `work` and `sinks` with one thread a head. Warps of readers hand a tile back; queries, once a
  // piece of work, each reader of `work` and `sinks`: one lane for its warp would do, but racecheck
  // follows a barrier only for the threads that arrive on it.
  __device__ void Init(int consumers) {
    ring.Init(kGatherThreads + kKvTile / 32, consumers / 32);
    q_ring.Init(kGatherThreads + kHeadTile, consumers);
  }
};

// Four threads share a packed record: piece 4 i + lane is theirs at step i.
inline constexpr int kPackedLanes = 4;
inline constexpr int kPackedSteps = kPackedPieces / kPackedLanes;

template <EntryFormat kFormat>
struct KvGather {
  const SparseAttentionParams& params;
  GatherShared& shared;
  int thread;
  int n = 0;        // uses of the ring so far
  int queries = 0;  // and of the queries' buffer

  // What a thread finds out about one row of a tile before the tile's turn: two dependent loads.
  __device__ KvSource Locate(const RowCandidates& c, const AttentionWork& work, int tile) const {
    if (thread >= kKvTile || tile >= work.tile_end) return {};
    return SlotSource<kFormat>(params, c, work.row, tile * kKvTile + thread);
  }

  __device__ void CopyQueries(const AttentionWork& work) {
    AnnounceWork(work);
    constexpr int kPieces = kKvDim / 8;
    const BFloat16* q = params.q + static_cast<int64_t>(work.row) * params.heads * kKvDim;
#pragma unroll 4
    for (int i = thread; i < kHeadTile * kPieces; i += kGatherThreads) {
      const int head = i / kPieces;
      const bool exists = work.head_begin + head < params.heads;
      const BFloat16* source = q + int64_t{work.head_begin + head} * kKvDim + i % kPieces * 8;
      CopyAsync16(SharedAddress(shared.q + KvOffset<kKvTile>(head, i % kPieces)),
                  exists ? source : params.q, exists);
    }
    ArriveWhenCopied(&shared.q_ring.full[0]);
  }
  __device__ void AnnounceEnd() {
    AnnounceWork({});
    shared.q_ring.ArriveFull(0);
  }

  // The next tile, whose rows `location` names.
  __device__ void Bring(const RowCandidates& c, int tile, const KvSource& location) {
    if (thread < kKvTile) {
      shared.source[n % 2][thread] = location.data;
      shared.scales[n % 2][thread] = location.scales;
    }
    SyncThreads(kBarrier, kGatherThreads);
    if (kFormat == EntryFormat::kBf16 || tile * kKvTile < c.window_slots) {
      shared.ring.WaitEmpty(n);
      CopyRows();
    } else {
      if constexpr (kFormat != EntryFormat::kBf16) ConvertRows();
    }
    if (thread < kKvTile) {
      const uint32_t exists = __ballot_sync(0xffffffffu, location.data != nullptr);
      if (thread % 32 == 0) {
        shared.exists[n % kKvStages][thread / 32] = exists;
        shared.ring.ArriveFull(n);
      }
    }
    ++n;
  }

 private:
  static constexpr int kBarrier = 3;

  __device__ void AnnounceWork(const AttentionWork& work) {
    const int head = work.head_begin + thread;
    const float sink = thread < kHeadTile && head < params.heads ? params.sinks[head] : 0;
    shared.q_ring.WaitEmpty(queries++);
    if (thread >= kHeadTile) return;
    if (thread == 0) shared.work = work;
    shared.sinks[thread] = sink;
    shared.q_ring.ArriveFull(0);
  }

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
        CopyAsync16(SharedAddress(Tile() + KvOffset<kKvTile>(first + i * kRowsAtOnce, piece)),
                    source, exists);
      }
    }
    ArriveWhenCopied(&shared.ring.full[n % kKvStages]);
  }

  // Packed records wait in registers, half a tile at a time: the first half until the stage is
  // free.
  struct Records {
    Vector16 pieces[kPackedSteps];
  };
  __device__ void LoadRecords(int row, Records& records) const {
    const std::byte* source = shared.source[n % 2][row];
#pragma unroll
    for (int step = 0; step < kPackedSteps; ++step) {
      Vector16& piece = records.pieces[step];
      piece = {0, 0, 0, 0};
      const int offset = (step * kPackedLanes + thread % kPackedLanes) * 16;
      if (source != nullptr) piece = Load16(source + offset);
    }
  }
  __device__ void StoreRecords(int row, const Records& records) const {
    const uint64_t scales = shared.scales[n % 2][row];
#pragma unroll
    for (int step = 0; step < kPackedSteps; ++step) {
      StorePackedPiece<kKvTile>(Tile(), row, step * kPackedLanes + thread % kPackedLanes,
                                records.pieces[step], scales);
    }
  }
  __device__ void ConvertRows() const {
    constexpr int kHalf = kGatherThreads / kPackedLanes;
    static_assert(2 * kHalf == kKvTile);
    const int row = thread / kPackedLanes;
    Records records;
    LoadRecords(row, records);
    shared.ring.WaitEmpty(n);
    StoreRecords(row, records);
    LoadRecords(row + kHalf, records);
    StoreRecords(row + kHalf, records);
    shared.ring.ArriveFull(n);
  }
};

}  // namespace baton::kernels::cuda
