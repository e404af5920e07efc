#include "common/base/check.h"
#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kValues = 16;  // a thread

struct BlockScales {
  const float* scales;
  int64_t stride;
  __device__ float At(int64_t row, int64_t col) const {
    return scales[row / 128 * stride + col / 128];
  }
};

struct RowScales {
  const float* scales;
  int64_t stride;
  __device__ float At(int64_t row, int64_t col) const { return scales[col / 128 * stride + row]; }
};

template <typename Scales>
__global__ void __launch_bounds__(kThreads)
    Dequantize(const uint8_t* codes, int64_t stride, int64_t rows, int64_t pieces, Scales scales,
               BFloat16* y, int64_t y_stride) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= rows * pieces) return;
  const int64_t row = index / pieces;
  const int64_t col = index % pieces * kValues;
  const float scale = scales.At(row, col);
  const Vector16 in = LoadStreaming16(codes + row * stride + col);
  const uint32_t words[4] = {in.x, in.y, in.z, in.w};
  uint32_t out[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float2 pair = UnpackE4m3(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    out[i] = PackBf16(pair.x * scale, pair.y * scale);
  }
  BFloat16* target = y + row * y_stride + col;
  Store16(target, make_uint4(out[0], out[1], out[2], out[3]));
  Store16(target + 8, make_uint4(out[4], out[5], out[6], out[7]));
}

template <typename Scales>
void Launch(MatrixView<const uint8_t> codes, Scales scales, MatrixView<BFloat16> y,
            CUstream_st* stream) {
  BATON_CHECK(y.rows == codes.rows && y.cols == codes.cols && y.cols % kValues == 0 &&
              codes.stride % kValues == 0 && y.stride % 8 == 0)
      << "codes [" << codes.rows << ", " << codes.cols << "], y [" << y.rows << ", " << y.cols
      << "]";
  const int64_t pieces = codes.cols / kValues;
  const int64_t blocks = (codes.rows * pieces + kThreads - 1) / kThreads;
  if (blocks == 0) return;
  Dequantize<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      codes.data, codes.stride, codes.rows, pieces, scales, y.data, y.stride);
  CheckLaunch("Dequantize");
}

}  // namespace

void DequantizeBlocks(const DequantizeBlocksParams& params, CUstream_st* stream) {
  Launch(params.codes, BlockScales{params.scales, params.scale_stride}, params.y, stream);
}

void DequantizeRows(const Fp8Rows& x, MatrixView<BFloat16> y, CUstream_st* stream) {
  Launch({x.codes, x.rows, x.cols, x.stride}, RowScales{x.scales, x.scale_stride}, y, stream);
}

}  // namespace baton::kernels::cuda
