#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/device/entry_target.cuh"
#include "kernels/cuda/device/index_format.cuh"
#include "kernels/cuda/entry_dispatch.h"
#include "kernels/cuda/entry_store.h"
#include "kernels/cuda/index_store.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 4;
// Blocks of a multiprocessor: what registers allow.
template <int kHeadDim>
constexpr int kResident = kHeadDim == 128 ? 5 : 4;
// That follow one another on each place. Schedulers favour some warps: with one long block a place,
// places would fall empty long before the end.
template <int kHeadDim>
constexpr int kRounds = kHeadDim == 128 ? 4 : 8;
constexpr int kStages = 2;  // tiles of a warp on their way

// A warp's rows on their way from memory, with head_dim 512 their rotations too. A lane fetches
// just what it will read, so that nobody waits for anybody. Rows pass through L2; the rotation
// table, which many sequences read, stays there as long as anything.
template <int kHeadDim>
class TilePipeline {
 public:
  using Tile = EntryTile<kHeadDim>;
  static constexpr bool kReadsRotations = kHeadDim == 512;
  static constexpr int kParts = Tile::kChunks + (kReadsRotations ? 2 : 0);
  using Buffer = Vector16[kWarps * kStages * kParts * 32];

  __device__ explicit TilePipeline(Buffer& buffer)
      : buffer_(buffer),
        own_(Held(threadIdx.x / 32 * (kStages * kParts * 32) + threadIdx.x % 32)) {}

  // Starts loading the lane's part of a row, which begins at `row`.
  __device__ void FetchRow(int stage, const BFloat16* row) {
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      CopyAsync16(Part(stage, chunk), row + Tile::Step(chunk), once_);
    }
  }
  // And of its rotation, which begins at `rope`.
  __device__ void FetchRotation(int stage, const float* rope) {
    CopyAsync16(Part(stage, Tile::kChunks), rope, often_);
    CopyAsync16(Part(stage, Tile::kChunks + 1), rope + kRopePairs, often_);
  }
  // Ends what belongs to a stage, also where nothing was fetched.
  __device__ void Commit() { CommitCopies(); }

  // Waits for the stage that was committed kStages - 1 others ago.
  __device__ void TakeRow(int stage, Tile& tile) {
    WaitCopies<kStages - 1>();
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) tile.SetChunk(chunk, *Part(stage, chunk));
  }
  // After that.
  __device__ typename Tile::Rotation TakeRotation(int stage) {
    const auto floats = [&](int part) { return *reinterpret_cast<float4*>(Part(stage, part)); };
    return {.cosines = {floats(Tile::kChunks)}, .sines = {floats(Tile::kChunks + 1)}};
  }

 private:
  __device__ Vector16* Part(int stage, int part) {
    return buffer_ + own_ + (stage * kParts + part) * 32;
  }

  Buffer& buffer_;
  int own_;
  L2Policy once_ = EvictFirst();
  L2Policy often_ = EvictLast();
};

template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__global__ void __launch_bounds__(32 * kWarps, kResident<kHeadDim>)
    StoreEntriesKernel(const StoreEntriesParams params) {
  using Tile = EntryTile<kHeadDim>;
  using Pipeline = TilePipeline<kHeadDim>;
  __shared__ typename Pipeline::Buffer buffer;
  __shared__ EntryOperands<kHeadDim> operands;
  Pipeline pipeline(buffer);
  const PageDivider divider(params.pool);
  const auto rows = static_cast<int>(params.rows);
  const int stride = static_cast<int>(gridDim.x) * kWarps * Tile::kRows;
  int row = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * Tile::kRows + Tile::Row();
  // Of the next row to fetch.
  int ahead = row;
  const BFloat16* source = params.pooled + int64_t{row} * kHeadDim + Tile::Channel(0);
  EntryTarget fetched;
  if constexpr (Pipeline::kReadsRotations) fetched = TargetOf(params, ahead, rows);
  const auto fetch = [&](int stage) {
    if (ahead < rows) {
      pipeline.FetchRow(stage, source);
      if constexpr (Pipeline::kReadsRotations) {
        const float* rope = params.rope.table + int64_t{fetched.OrFirst().entry} * kRopeDim;
        pipeline.FetchRotation(stage, rope + Tile::Channel(0) / 2);
      }
    }
    pipeline.Commit();
    ahead += stride;
    source = Held(source + int64_t{stride} * kHeadDim);
    if constexpr (Pipeline::kReadsRotations) fetched = TargetOf(params, ahead, rows);
  };
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) fetch(stage);
  EntryTarget next = TargetOf(params, row, rows);
  if (threadIdx.x < 32) {
    operands.template Fill<kFormat>(params.weight, params.rope.frequencies);
  }
  __syncthreads();
  unsigned stage = 0;
  for (int first = row - Tile::Row(); first < rows; first += stride) {
    const EntryTarget target = next;
    row += stride;
    next = TargetOf(params, row, rows);
    const auto [sequence, entry] = target.OrFirst();
    const int32_t* pages = params.page_table + int64_t{sequence} * params.max_pages;
    EntryPlace place = LocateEntry(params.pool, divider, pages, entry);
    if (!target.is_somewhere()) place.index = -1;
    Tile tile;
    pipeline.TakeRow(stage, tile);
    NormalizeRows(tile, operands, params.eps);
    if constexpr (Pipeline::kReadsRotations) {
      RotateRows(tile, operands, pipeline.TakeRotation(stage));
    } else {
      RotateRows(tile, operands, RotationOf(operands, params.rope, entry));
    }
    fetch(stage);
    StoreRows<kFormat, kNumerics>(tile, operands, params.pool, place);
    stage = (stage + 1) % kStages;
  }
}

}  // namespace

void StoreEntries(const StoreEntriesParams& params, CUstream_st* stream) {
  BATON_CHECK(params.rows < int64_t{1} << 30) << params.rows << " rows in one launch";
  if (params.rows == 0) return;
  DispatchEntryFormat(params.pool, params.numerics, [&](auto head_dim, auto format, auto numerics) {
    if constexpr (format.value == EntryFormat::kFp4Index) {
      StoreFp4Keys(params, stream);
    } else {
      constexpr int kBlockRows = kWarps * EntryTile<head_dim.value>::kRows;
      const int64_t all = (params.rows + kBlockRows - 1) / kBlockRows;
      const int64_t places = int64_t{kResident<head_dim.value>} * CurrentDevice().multiprocessors;
      const int64_t blocks = std::min(all, kRounds<head_dim.value> * places);
      StoreEntriesKernel<head_dim.value, format.value, numerics.value>
          <<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream>>>(params);
      CheckLaunch("StoreEntries");
    }
  });
}

}  // namespace baton::kernels::cuda
