#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/store_fp8.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/quantize.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of a thread, all loaded before the first is used

__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(MatrixView<const BFloat16> x, const MutableFp8Rows y) {
  AwaitPredecessors();
  const int64_t per_row = x.cols / 8;
  const int64_t first = int64_t{blockIdx.x} * kThreads * kVectors + threadIdx.x;
  uint32_t words[kVectors][4];
  int64_t row[kVectors];
  int64_t column[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t vector = first + i * kThreads;
    row[i] = vector / per_row;
    column[i] = (vector - row[i] * per_row) * 8;
    Vector16 value = {0, 0, 0, 0};
    if (row[i] < x.rows) value = LoadStreaming16(x.Row(row[i]) + column[i]);
    words[i][0] = value.x;
    words[i][1] = value.y;
    words[i][2] = value.z;
    words[i][3] = value.w;
  }
  float scale[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) scale[i] = Fp8GroupScale(words[i]);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (row[i] < x.rows) StoreFp8(y, row[i], column[i], words[i], scale[i]);
  }
}

}  // namespace

void Quantize(MatrixView<const BFloat16> x, const MutableFp8Rows& y, CUstream_st* stream) {
  BATON_CHECK(x.cols % kActivationGroup == 0 && x.stride % 8 == 0 && y.cols == x.cols &&
              y.rows == x.rows && y.stride % 16 == 0 && y.scale_stride >= x.rows)
      << "width " << x.cols << " into " << y.cols << ", scale stride " << y.scale_stride;
  const int64_t vectors = x.rows * x.cols / 8;
  if (vectors == 0) return;
  const int64_t blocks = (vectors + kThreads * kVectors - 1) / (kThreads * kVectors);
  LaunchClosely(QuantizeKernel, {dim3(static_cast<unsigned>(blocks)), kThreads}, stream, x, y);
  CheckLaunch("Quantize");
}

}  // namespace baton::kernels::cuda
