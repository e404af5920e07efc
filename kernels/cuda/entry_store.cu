#include <algorithm>

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/entry_dispatch.h"
#include "kernels/cuda/entry_store.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kBlocksPerProcessor = 4;  // what registers allow

// A warp's rows on their way from memory: the next tile travels while one is computed. A lane
// fetches just what it will read, so that nobody waits for anybody.
template <int kHeadDim>
class RowPipeline {
 public:
  using Tile = EntryTile<kHeadDim>;
  static constexpr int kVectors = Tile::kRowsPerLane * Tile::kChunks;
  static constexpr int kStages = 2;
  using Buffer = Vector16[kStages][kVectors][32];  // of a warp

  __device__ explicit RowPipeline(Buffer& buffer) : buffer_(buffer) {}

  // Starts loading the tile whose first row is `first`; rows past the end become zeros.
  __device__ void Fetch(const BFloat16* rows, int64_t count, int64_t first, int stage) {
#pragma unroll
    for (int i = 0; i < Tile::kRowsPerLane; ++i) {
      const int64_t row = first + Tile::Row(i);
      const bool exists = row < count;
      const BFloat16* source = rows + (exists ? row : 0) * kHeadDim;
#pragma unroll
      for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
        __pipeline_memcpy_async(&buffer_[stage][i * Tile::kChunks + chunk][threadIdx.x % 32],
                                source + Tile::Channel(chunk), 16, exists ? 0 : 16);
      }
    }
    __pipeline_commit();
  }

  // The tile of `stage`, which is not the last one that was fetched.
  __device__ void Take(int stage, Tile& tile) const {
    __pipeline_wait_prior(1);
#pragma unroll
    for (int i = 0; i < Tile::kRowsPerLane; ++i) {
#pragma unroll
      for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
        tile.SetChunk(i, chunk, buffer_[stage][i * Tile::kChunks + chunk][threadIdx.x % 32]);
      }
    }
  }

 private:
  Buffer& buffer_;
};

template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__global__ void __launch_bounds__(32 * kWarps, kBlocksPerProcessor)
    StoreEntriesKernel(const StoreEntriesParams params) {
  using Tile = EntryTile<kHeadDim>;
  using Pipeline = RowPipeline<kHeadDim>;
  __shared__ typename Pipeline::Buffer buffers[kWarps];
  Pipeline pipeline(buffers[threadIdx.x / 32]);
  const int64_t stride = int64_t{gridDim.x} * kWarps * Tile::kRows;
  int64_t first = (int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * Tile::kRows;
  int sequence[Tile::kRowsPerLane];
  int entry[Tile::kRowsPerLane];
  const auto look_up = [&](int64_t tile_row) {
#pragma unroll
    for (int i = 0; i < Tile::kRowsPerLane; ++i) {
      const int64_t row = tile_row + Tile::Row(i);
      sequence[i] = row < params.rows ? params.sequence[row] : -1;
      entry[i] = row < params.rows ? params.entry[row] : 0;
    }
  };
  const PageDivider divider(params.pool);
  pipeline.Fetch(params.pooled, params.rows, first, 0);
  look_up(first);
  for (int stage = 0; first < params.rows; first += stride, stage ^= 1) {
    pipeline.Fetch(params.pooled, params.rows, first + stride, stage ^ 1);
    EntryPlace place[Tile::kRowsPerLane];
    const float* rope[Tile::kRowsPerLane];
#pragma unroll
    for (int i = 0; i < Tile::kRowsPerLane; ++i) {
      rope[i] = params.rope;
      if (sequence[i] < 0) continue;
      const int32_t* pages = params.page_table + int64_t{sequence[i]} * params.max_pages;
      place[i] = LocateEntry(params.pool, divider, pages, entry[i]);
      rope[i] = params.rope + int64_t{entry[i]} * kRopeDim;
    }
    look_up(first + stride);
    Tile tile;
    pipeline.Take(stage, tile);
    FinishEntries<kHeadDim, kFormat, kNumerics>(tile, params.weight, params.eps, rope, place,
                                                params.pool.entries_per_page);
  }
}

}  // namespace

void StoreEntries(const StoreEntriesParams& params, CUstream_st* stream) {
  if (params.rows == 0) return;
  DispatchEntryFormat(params.pool, params.numerics, [&](auto head_dim, auto format, auto numerics) {
    constexpr int kBlockRows = kWarps * EntryTile<head_dim.value>::kRows;
    const int64_t all = (params.rows + kBlockRows - 1) / kBlockRows;
    const int64_t resident = int64_t{kBlocksPerProcessor} * CurrentDevice().multiprocessors;
    const int64_t blocks = std::min(all, resident);
    StoreEntriesKernel<head_dim.value, format.value, numerics.value>
        <<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream>>>(params);
  });
  CheckLaunch("StoreEntries");
}

}  // namespace baton::kernels::cuda
