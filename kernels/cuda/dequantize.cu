#include "common/base/check.h"
#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kValues = 16;  // a thread

__global__ void __launch_bounds__(kThreads) Dequantize(DequantizeBlocksParams params) {
  const int64_t pieces = params.codes.cols / kValues;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= params.codes.rows * pieces) return;
  const int64_t row = index / pieces;
  const int64_t col = index % pieces * kValues;
  const float scale = params.scales[row / 128 * params.scale_stride + col / 128];
  const Vector16 in = LoadStreaming16(params.codes.Row(row) + col);
  const uint32_t words[4] = {in.x, in.y, in.z, in.w};
  uint32_t out[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float2 pair = UnpackE4m3(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    out[i] = PackBf16(pair.x * scale, pair.y * scale);
  }
  BFloat16* target = params.y.Row(row) + col;
  Store16(target, make_uint4(out[0], out[1], out[2], out[3]));
  Store16(target + 8, make_uint4(out[4], out[5], out[6], out[7]));
}

}  // namespace

void DequantizeBlocks(const DequantizeBlocksParams& params, CUstream_st* stream) {
  const auto& [codes, scales, scale_stride, y] = params;
  BATON_CHECK(y.rows == codes.rows && y.cols == codes.cols && y.cols % kValues == 0 &&
              codes.stride % kValues == 0 && y.stride % 8 == 0)
      << "codes [" << codes.rows << ", " << codes.cols << "], y [" << y.rows << ", " << y.cols
      << "]";
  const int64_t blocks = (codes.rows * (codes.cols / kValues) + kThreads - 1) / kThreads;
  if (blocks == 0) return;
  Dequantize<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(params);
  CheckLaunch("Dequantize");
}

}  // namespace baton::kernels::cuda
