#pragma once

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/sparse_attention_rows.cuh"

// One warpgroup that brings queries and tiles of candidates to shared memory as BF16, ahead of
// those who use them.
//
// The tiles of a piece of work are taken in pairs, each of the two into a buffer of its own. A
// buffer is filled and handed back by halves of the channels, so that one half is on its way while
// the other is still used: two tiles are all that fits next to the queries.

namespace baton::kernels::cuda {

inline constexpr int kGatherThreads = 128;
inline constexpr int kGatherWarps = kGatherThreads / 32;
inline constexpr int kWarpRows = kKvTile / kGatherWarps;  // of a tile: a warp's own
inline constexpr int kPair = 2;                           // tiles; their first and second half
inline constexpr int kKvBlockBytes = kKvTile * 128;       // 64 channels of a tile
inline constexpr int kKvTileBytes = kKvBlocks * kKvBlockBytes;
inline constexpr int kKvHalfBytes = kKvTileBytes / 2;
static_assert(kHeadTile == kKvTile);  // queries lie as candidates do

struct GatherShared {
  alignas(1024) uint8_t q[kKvTileBytes];  // 64 heads
  alignas(1024) uint8_t tiles[kPair][kKvTileBytes];
  KvSource sources[kKvTile];                        // from lanes of a warp to all of them
  alignas(8) uint16_t exists[kPair][kGatherWarps];  // which rows of a tile are candidates
  AttentionWork work;                               // that `q` belongs to; no tiles: the end
  StageRing<2> rings[kPair];                        // of a buffer: its halves are the stages
  StageRing<1> q_ring;

  __device__ uint64_t Exists(int buffer) const {
    return *reinterpret_cast<const uint64_t*>(exists[buffer]);
  }

  // Copies arrive with each gathering thread, `exists` with one lane of each warp, `work` with one
  // thread. A half is handed back by `half_users` arrivals, the queries by `q_users`.
  __device__ void Init(int half_users, int q_users) {
    for (StageRing<2>& ring : rings) ring.Init(kGatherThreads + kGatherWarps, half_users);
    q_ring.Init(kGatherThreads + 1, q_users);
  }
};

// The warps bring their rows of each tile without waiting for each other.
template <EntryFormat kFormat>
struct KvGather {
  const SparseAttentionParams& params;
  GatherShared& shared;
  int warp;
  int lane;
  int uses = 0;     // bit b: of buffer b so far, modulo 2
  int queries = 0;  // uses of the queries' buffer so far

  __device__ void CopyQueries(const AttentionWork& work) {
    AnnounceWork(work);
    const BFloat16* q =
        params.q + (static_cast<int64_t>(work.row) * params.heads + work.head_begin) * kKvDim;
    const int heads = params.heads - work.head_begin;
#pragma unroll 4
    for (int i = 0; i < kWarpRows * 2; ++i) {
      const int head = warp * kWarpRows + i / 2;
      const int piece = i % 2 * 32 + lane;
      const bool exists = head < heads;
      CopyAsync16(SharedAddress(shared.q) + KvOffset<kKvTile>(head, piece),
                  exists ? q + head * kKvDim + piece * 8 : params.q, exists);
    }
    ArriveWhenCopied(&shared.q_ring.full[0]);
  }
  __device__ void AnnounceEnd() {
    AnnounceWork({});
    shared.q_ring.ArriveFull(0);
  }

  // All tiles of a piece of work, in turn to both buffers. Where their rows are takes two loads,
  // one needing the other, which are started two tiles and one tile ahead.
  __device__ void BringTiles(const RowCandidates& c, const AttentionWork& work) {
    int entry = LoadEntry(c, work, work.tile);
    int page = LoadPage(c, entry);
    int next_entry = LoadEntry(c, work, work.tile + 1);
    for (int tile = work.tile; tile < work.tile_end; ++tile) {
      const int next_page = LoadPage(c, next_entry);
      const int behind = LoadEntry(c, work, tile + 2);
      const int slot = tile * kKvTile + warp * kWarpRows + lane;
      KvSource source;
      if (lane < kWarpRows && slot < c.window_slots) {
        if (c.Exists(slot)) source.data = WindowRow(params, c, slot);
      } else if (entry >= 0) {
        source = SourceOnPage<kFormat>(params, page, entry);
      }
      const bool packed = kFormat != EntryFormat::kBf16 && tile * kKvTile >= c.window_slots;
      if ((tile - work.tile) % kPair == 0) {
        Bring<0>(source, packed);
      } else {
        Bring<1>(source, packed);
      }
      entry = next_entry;
      page = next_page;
      next_entry = behind;
    }
  }

 private:
  __device__ void AnnounceWork(const AttentionWork& work) {
    shared.q_ring.WaitEmpty(queries++);
    if (warp + lane != 0) return;
    shared.work = work;
    shared.q_ring.ArriveFull(0);
  }

  // Of the lane's row; -1 where that is not a compressed entry.
  __device__ int LoadEntry(const RowCandidates& c, const AttentionWork& work, int tile) const {
    const int slot = tile * kKvTile + warp * kWarpRows + lane;
    if (lane >= kWarpRows || tile >= work.tile_end) return -1;
    if (slot < c.window_slots || !c.Exists(slot)) return -1;
    return EntryOf(params, work.row, slot - c.window_slots);
  }
  __device__ int LoadPage(const RowCandidates& c, int entry) const {
    return entry < 0 ? 0 : PageOf(params, c, entry);
  }

  // A tile, whose rows the first lanes' `source` names, to a buffer. Its scores begin with the half
  // of the same number.
  template <int kBuffer>
  __device__ void Bring(const KvSource& source, bool packed) {
    const uint32_t exists = __ballot_sync(0xffffffffu, source.data != nullptr);
    __syncwarp();  // the tile before has been read
    if (lane < kWarpRows) shared.sources[warp * kWarpRows + lane] = source;
    __syncwarp();
    if (!packed) {
      const CopiedRows rows = RowsOfWarp(exists);
      CopyHalf<kBuffer, kBuffer>(rows);
      AnnounceExists(exists, kBuffer, kBuffer);
      CopyHalf<kBuffer, 1 - kBuffer>(rows);
    } else if constexpr (kFormat != EntryFormat::kBf16) {
      Convert<kBuffer>(exists);
    }
    AnnounceExists(exists, kBuffer, 1 - kBuffer);
    uses ^= 1 << kBuffer;
  }
  // With the half that arrives first; the other one's barrier counts alike.
  __device__ void AnnounceExists(uint32_t exists, int buffer, int half) const {
    if (lane != 0) return;
    if (half == buffer) shared.exists[buffer][warp] = static_cast<uint16_t>(exists);
    shared.rings[buffer].ArriveFull(half);
  }
  __device__ void WaitEmpty(int buffer, int half) const {
    shared.rings[buffer].WaitEmpty(2 * (uses >> buffer & 1) + half);
  }

  // BF16 rows go straight to their places, half a row at a time by the lanes of a warp. Addresses
  // are there before the buffer is free, and each has registers of its own: a copy reads them late.
  struct CopiedRows {
    const std::byte* from[kWarpRows];  // the lane's 16 bytes of the first half
    uint32_t exists;                   // bit i: row i is there
  };
  __device__ CopiedRows RowsOfWarp(uint32_t exists) const {
    CopiedRows rows = {.exists = exists};
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const std::byte* source = shared.sources[warp * kWarpRows + i].data;
      if (source == nullptr) source = reinterpret_cast<const std::byte*>(params.q);
      rows.from[i] = source + lane * 16;
    }
    return rows;
  }
  template <int kBuffer, int kHalf>
  __device__ void CopyHalf(const CopiedRows& rows) const {
    const uint32_t target = SharedAddress(shared.tiles[kBuffer]) + warp * kWarpRows * 128;
    WaitEmpty(kBuffer, kHalf);
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      CopyAsync16(target + kHalf * kKvHalfBytes + KvOffset<kKvTile>(i, lane),
                  rows.from[i] + kHalf * kKvDim, (rows.exists >> i & 1) != 0);
    }
    ArriveWhenCopied(&shared.rings[kBuffer].full[kHalf]);
  }

  // Four lanes share a packed record: of a half's pieces those at 4 i + their number. A warp has
  // two rounds of eight; the next pieces are on their way while others are converted.
  static constexpr int kRecordLanes = 4;
  static constexpr int kRoundRows = 32 / kRecordLanes;
  static_assert(kWarpRows == 2 * kRoundRows);
  template <int kHalf>
  struct HalfRecord {
    static constexpr int kFirst = kHalf * (kKvDim / 32);
    static constexpr int kEnd = kHalf == 0 ? kKvDim / 32 : kPackedPieces;
    static constexpr int kSteps = (kEnd - kFirst) / kRecordLanes;
    Vector16 pieces[kSteps];
    uint64_t scales;
  };
  __device__ int RowOfRound(int round) const {
    return warp * kWarpRows + round * kRoundRows + lane / kRecordLanes;
  }
  template <int kHalf>
  __device__ HalfRecord<kHalf> LoadHalf(int round) const {
    const KvSource source = shared.sources[RowOfRound(round)];
    HalfRecord<kHalf> record;
    record.scales = source.Scales();
#pragma unroll
    for (int step = 0; step < record.kSteps; ++step) {
      record.pieces[step] = {0, 0, 0, 0};
      const int piece = record.kFirst + step * kRecordLanes + lane % kRecordLanes;
      if (source.data != nullptr) record.pieces[step] = Load16(source.data + piece * 16);
    }
    return record;
  }
  template <int kBuffer, int kHalf>
  __device__ void StoreHalf(int round, const HalfRecord<kHalf>& record) const {
#pragma unroll
    for (int step = 0; step < record.kSteps; ++step) {
      const int piece = record.kFirst + step * kRecordLanes + lane % kRecordLanes;
      StorePackedPiece<kKvTile>(shared.tiles[kBuffer], RowOfRound(round), piece,
                                record.pieces[step], record.scales);
    }
  }
  template <int kBuffer>
  __device__ void Convert(uint32_t exists) const {
    constexpr int kFirst = kBuffer;
    constexpr int kSecond = 1 - kBuffer;
    const auto a0 = LoadHalf<kFirst>(0);
    const auto a1 = LoadHalf<kFirst>(1);
    WaitEmpty(kBuffer, kFirst);
    StoreHalf<kBuffer>(0, a0);
    const auto b0 = LoadHalf<kSecond>(0);
    StoreHalf<kBuffer>(1, a1);
    const auto b1 = LoadHalf<kSecond>(1);
    shared.rings[kBuffer].ArriveFull(kFirst);
    AnnounceExists(exists, kBuffer, kFirst);
    WaitEmpty(kBuffer, kSecond);
    StoreHalf<kBuffer>(0, b0);
    StoreHalf<kBuffer>(1, b1);
    shared.rings[kBuffer].ArriveFull(kSecond);
  }
};

}  // namespace baton::kernels::cuda
