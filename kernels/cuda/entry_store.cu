#include "common/base/check.h"
#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/entry_dispatch.h"
#include "kernels/cuda/entry_store.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 4;

template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__global__ void __launch_bounds__(32 * kWarps) StoreEntriesKernel(const StoreEntriesParams params) {
  using Tile = EntryTile<kHeadDim>;
  const int64_t first_row = (int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * Tile::kRows;
  Tile tile;
  EntryPlace place[Tile::kRowsPerLane];
  const float* rope[Tile::kRowsPerLane];
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerLane; ++i) {
    const int64_t row = first_row + Tile::Row(i);
    const int sequence = row < params.rows ? params.sequence[row] : -1;
    tile.Load(i, sequence >= 0 ? params.pooled + row * kHeadDim : nullptr);
    if (sequence < 0) continue;
    const int entry = params.entry[row];
    const int32_t* pages = params.page_table + int64_t{sequence} * params.max_pages;
    place[i] = LocateEntry(params.pool, pages, entry);
    rope[i] = params.rope + int64_t{entry} * kRopeDim;
  }
  FinishEntries<kHeadDim, kFormat, kNumerics>(tile, params.weight, params.eps, rope, place,
                                              params.pool.entries_per_page);
}

}  // namespace

void StoreEntries(const StoreEntriesParams& params, CUstream_st* stream) {
  if (params.rows == 0) return;
  DispatchEntryFormat(params.pool, params.numerics, [&](auto head_dim, auto format, auto numerics) {
    constexpr int kBlockRows = kWarps * EntryTile<head_dim.value>::kRows;
    const int64_t blocks = (params.rows + kBlockRows - 1) / kBlockRows;
    StoreEntriesKernel<head_dim.value, format.value, numerics.value>
        <<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream>>>(params);
  });
  CheckLaunch("StoreEntries");
}

}  // namespace baton::kernels::cuda
