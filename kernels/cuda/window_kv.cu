#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/entry_tile.cuh"
#include "kernels/cuda/device/ring.cuh"
#include "kernels/cuda/window_kv.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 4;

template <Numerics kNumerics>
__global__ void __launch_bounds__(32 * kWarps) WindowKvKernel(const WindowKvParams params) {
  AwaitPredecessors();
  using Tile = EntryTile<512>;
  const BatchView& batch = params.batch;
  const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * Tile::kRows + Tile::Row();
  Tile tile;
  tile.Load(row < batch.rows ? params.kv.Row(row) : nullptr);
  const int sequence = row < batch.rows ? batch.sequence[row] : -1;
  tile.Normalize<true>(tile.MeanSquare(), params.weight, params.eps);
  if (row < batch.rows) {
    tile.Rotate(Tile::LoadRotation(params.rope + int64_t{row} * kRopeDim));
  }
  if constexpr (kNumerics == Numerics::kReference) {
#pragma unroll
    for (int chunk = 0; chunk < Tile::kRopeChunk; ++chunk) {
      tile.SnapToE4m3(chunk, tile.LargestOfChunk(chunk));
    }
  }
  if (sequence < 0) return;
  tile.Store(params.kv.Row(row));
  if (params.ring.data != nullptr) {
    tile.Store(RingRow(params.ring, batch.slot[sequence], batch.position[row]));
  }
}

// A warp a row: row `back` before the end of sequence blockIdx.y.
template <typename T>
__global__ void WriteRingsKernel(const BatchView batch, MatrixView<const T> rows, SlotRings<T> ring,
                                 const float* bias, int bias_rows) {
  const int sequence = blockIdx.y;
  const int back = blockIdx.x * kWarps + threadIdx.x / 32;
  const int row = batch.row_begin[sequence + 1] - 1 - back;
  if (row < batch.row_begin[sequence] || back >= ring.rows) return;
  const int position = batch.position[row];
  const RingSource<T> source = {.row = rows.Row(row),
                                .bias = BiasRow(bias, bias_rows, ring.width, position)};
  CopyToRing(source, ring.width, threadIdx.x % 32, 32,
             RingRow(ring, batch.slot[sequence], position));
}

template <typename T>
void LaunchWriteRings(const BatchView& batch, MatrixView<const T> rows, SlotRings<T> ring,
                      const float* bias, int bias_rows, CUstream_st* stream) {
  constexpr int kPerVector = 16 / sizeof(T);
  BATON_CHECK(rows.cols == ring.width && ring.width % (2 * kPerVector) == 0 &&
              rows.stride % kPerVector == 0)
      << "row width " << rows.cols << ", ring " << ring.width;
  const int count = std::min(batch.max_rows, ring.rows);
  if (count == 0 || batch.sequences == 0) return;
  const dim3 grid((count + kWarps - 1) / kWarps, batch.sequences);
  WriteRingsKernel<T><<<grid, 32 * kWarps, 0, stream>>>(batch, rows, ring, bias, bias_rows);
  CheckLaunch("WriteRings");
}

constexpr int kReadThreads = 256;

__global__ void ReadRingsKernel(const BatchView batch, SlotRings<const BFloat16> ring,
                                MatrixView<BFloat16> rows) {
  const int row = blockIdx.x;
  const int sequence = batch.sequence[row];
  const int column = (blockIdx.y * kReadThreads + threadIdx.x) * 8;
  if (sequence < 0 || column >= ring.width) return;
  const BFloat16* source = RingRow(ring, batch.slot[sequence], batch.position[row]);
  Store16(rows.Row(row) + column, Load16(source + column));
}

}  // namespace

void WindowKv(const WindowKvParams& params, CUstream_st* stream) {
  BATON_CHECK(params.kv.cols == 512 && params.kv.stride % 8 == 0)
      << "no kernel for head_dim " << params.kv.cols;
  BATON_CHECK(
      params.ring.data == nullptr ||
      (params.ring.width == 512 && params.batch.max_rows <= params.ring.rows - (params.window - 1)))
      << params.batch.max_rows << " rows a sequence would overwrite a window of " << params.window
      << " in a ring of " << params.ring.rows;
  if (params.batch.rows == 0) return;
  constexpr int kBlockRows = kWarps * EntryTile<512>::kRows;
  const int blocks = (params.batch.rows + kBlockRows - 1) / kBlockRows;
  const auto kernel = params.numerics == Numerics::kReference ? WindowKvKernel<Numerics::kReference>
                                                              : WindowKvKernel<Numerics::kExact>;
  LaunchClosely(kernel, {dim3(blocks), 32 * kWarps}, stream, params);
  CheckLaunch("WindowKv");
}

void WriteRings(const BatchView& batch, MatrixView<const BFloat16> rows, SlotRings<BFloat16> ring,
                CUstream_st* stream) {
  LaunchWriteRings(batch, rows, ring, nullptr, 0, stream);
}

void WriteRings(const BatchView& batch, MatrixView<const float> rows, SlotRings<float> ring,
                const float* bias, int bias_rows, CUstream_st* stream) {
  LaunchWriteRings(batch, rows, ring, bias, bias_rows, stream);
}

void ReadRings(const BatchView& batch, SlotRings<const BFloat16> ring, MatrixView<BFloat16> rows,
               CUstream_st* stream) {
  BATON_CHECK(rows.cols == ring.width && ring.width % 8 == 0 && rows.stride % 8 == 0)
      << "row width " << rows.cols << ", ring " << ring.width;
  if (batch.rows == 0) return;
  const dim3 grid(batch.rows, (ring.width / 8 + kReadThreads - 1) / kReadThreads);
  ReadRingsKernel<<<grid, kReadThreads, 0, stream>>>(batch, ring, rows);
  CheckLaunch("ReadRings");
}

}  // namespace baton::kernels::cuda
