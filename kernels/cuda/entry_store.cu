#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/entry_dispatch.h"
#include "kernels/cuda/entry_store.h"
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

// Keeps an address in registers: the compiler would put it together again for each access.
template <typename T>
__device__ const T* Held(const T* address) {
  asm volatile("" : "+l"(address));
  return address;
}

// A warp's rows and their rotations on their way from memory. A lane fetches just what it will
// read, so that nobody waits for anybody. Rows pass through L2; the rotation table, which many
// sequences read, stays there as long as anything.
template <int kHeadDim>
class TilePipeline {
 public:
  using Tile = EntryTile<kHeadDim>;
  static constexpr int kRotated = Tile::kChunks - Tile::kRopeChunk;
  struct Stage {
    Vector16 row[Tile::kChunks][32];
    float4 cosines[kRotated][32];
    float4 sines[kRotated][32];
  };
  using Buffer = Stage[kStages];  // of a warp

  __device__ explicit TilePipeline(Buffer& buffer) : buffer_(buffer) {}

  // Starts loading the lane's part of a row, which begins at `row`.
  __device__ void FetchRow(int stage, const BFloat16* row) {
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      CopyAsync16(&buffer_[stage].row[chunk][threadIdx.x % 32], row + Tile::Step(chunk), once_);
    }
  }
  // And of its rotation, which begins at `rope`.
  __device__ void FetchRotation(int stage, const float* rope) {
#pragma unroll
    for (int chunk = 0; chunk < kRotated; ++chunk) {
      const float* cosines = rope + Tile::Step(chunk) / 2;
      CopyAsync16(&buffer_[stage].cosines[chunk][threadIdx.x % 32], cosines, often_);
      CopyAsync16(&buffer_[stage].sines[chunk][threadIdx.x % 32], cosines + kRopePairs, often_);
    }
  }
  // Ends what belongs to a stage, also where nothing was fetched.
  __device__ void Commit() { CommitCopies(); }

  // Waits for the stage that was committed kStages - 1 others ago.
  __device__ void TakeRow(int stage, Tile& tile) const {
    WaitCopies<kStages - 1>();
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      tile.SetChunk(chunk, buffer_[stage].row[chunk][threadIdx.x % 32]);
    }
  }
  // After that.
  __device__ typename Tile::Rotation TakeRotation(int stage) const {
    typename Tile::Rotation rotation;
#pragma unroll
    for (int chunk = 0; chunk < kRotated; ++chunk) {
      rotation.cosines[chunk] = buffer_[stage].cosines[chunk][threadIdx.x % 32];
      rotation.sines[chunk] = buffer_[stage].sines[chunk][threadIdx.x % 32];
    }
    return rotation;
  }

 private:
  Buffer& buffer_;
  L2Policy once_ = EvictFirst();
  L2Policy often_ = EvictLast();
};

struct Target {
  int sequence = -1;  // -1: nowhere
  int entry = 0;
};

__device__ Target TargetOf(const StoreEntriesParams& params, int row) {
  if (row >= params.rows) return {};
  return {.sequence = params.sequence[row], .entry = params.entry[row]};
}

template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__global__ void __launch_bounds__(32 * kWarps, kResident<kHeadDim>)
    StoreEntriesKernel(const StoreEntriesParams params) {
  using Tile = EntryTile<kHeadDim>;
  using Pipeline = TilePipeline<kHeadDim>;
  __shared__ typename Pipeline::Buffer buffers[kWarps];
  __shared__ EntryOperands<kHeadDim> operands;
  Pipeline pipeline(buffers[threadIdx.x / 32]);
  const PageDivider divider(params.pool);
  const auto rows = static_cast<int>(params.rows);
  const int stride = static_cast<int>(gridDim.x) * kWarps * Tile::kRows;
  int row = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * Tile::kRows + Tile::Row();
  const float* const rope = Held(params.rope + Tile::Channel(0) / 2);
  // Of the next row to fetch.
  int ahead = row;
  const BFloat16* source = params.pooled + int64_t{row} * kHeadDim + Tile::Channel(0);
  Target target = TargetOf(params, ahead);
  const auto fetch = [&](int stage) {
    if (ahead < rows) {
      pipeline.FetchRow(stage, source);
      const int entry = target.sequence < 0 ? 0 : target.entry;
      pipeline.FetchRotation(stage, rope + int64_t{entry} * kRopeDim);
    }
    pipeline.Commit();
    ahead += stride;
    source = Held(source + int64_t{stride} * kHeadDim);
    target = TargetOf(params, ahead);
  };
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) fetch(stage);
  if (threadIdx.x < 32) operands.Fill(params.weight);
  __syncthreads();
  for (int stage = 0; row - Tile::Row() < rows; row += stride, stage = (stage + 1) % kStages) {
    EntryPlace place;
    const Target own = TargetOf(params, row);
    if (own.sequence >= 0) {
      const int32_t* pages = params.page_table + int64_t{own.sequence} * params.max_pages;
      place = LocateEntry(params.pool, divider, pages, own.entry);
    }
    Tile tile;
    pipeline.TakeRow(stage, tile);
    NormalizeRows(tile, operands, params.eps);
    tile.Rotate(pipeline.TakeRotation(stage));
    fetch(stage);
    StoreRows<kFormat, kNumerics>(tile, operands, params.pool, place);
  }
}

}  // namespace

void StoreEntries(const StoreEntriesParams& params, CUstream_st* stream) {
  BATON_CHECK(params.rows < int64_t{1} << 30) << params.rows << " rows in one launch";
  if (params.rows == 0) return;
  DispatchEntryFormat(params.pool, params.numerics, [&](auto head_dim, auto format, auto numerics) {
    constexpr int kBlockRows = kWarps * EntryTile<head_dim.value>::kRows;
    const int64_t all = (params.rows + kBlockRows - 1) / kBlockRows;
    const int64_t places = int64_t{kResident<head_dim.value>} * CurrentDevice().multiprocessors;
    const int64_t blocks = std::min(all, kRounds<head_dim.value> * places);
    StoreEntriesKernel<head_dim.value, format.value, numerics.value>
        <<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream>>>(params);
  });
  CheckLaunch("StoreEntries");
}

}  // namespace baton::kernels::cuda
