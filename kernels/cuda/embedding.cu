#include "common/base/check.h"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/embedding.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void EmbedKernel(MatrixView<const BFloat16> table, const int32_t* tokens, int copies,
                            MatrixView<BFloat16> y) {
  const int row = blockIdx.x;
  const int column = (blockIdx.y * kThreads + threadIdx.x) * 8;
  if (column >= table.cols) return;
  const int token = tokens[row];
  Vector16 value = {0, 0, 0, 0};
  if (token >= 0 && token < table.rows) value = Load16(table.Row(token) + column);
  for (int copy = 0; copy < copies; ++copy) {
    Store16(y.Row(row) + copy * table.cols + column, value);
  }
}

}  // namespace

void Embed(MatrixView<const BFloat16> table, const int32_t* tokens, int copies,
           MatrixView<BFloat16> y, CUstream_st* stream) {
  BATON_CHECK(y.cols == table.cols * copies && table.cols % 8 == 0 && table.stride % 8 == 0 &&
              y.stride % 8 == 0)
      << "width " << table.cols << ", copies " << copies;
  if (y.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(y.rows),
                  static_cast<unsigned>((table.cols / 8 + kThreads - 1) / kThreads));
  EmbedKernel<<<grid, kThreads, 0, stream>>>(table, tokens, copies, y);
  CheckLaunch("Embed");
}

}  // namespace baton::kernels::cuda
