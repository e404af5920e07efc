#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/store_fp8.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/rms_norm.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kMaxWidth = 8192;

// kRowThreads threads share a row, kChunks times 8 columns each; a row lies in registers between
// the two passes.
template <int kRowThreads, int kChunks>
__global__ void __launch_bounds__(kThreads, 2) RmsNormKernel(const RmsNormParams params) {
  AwaitPredecessors();
  constexpr int kBlockRows = kThreads / kRowThreads;
  __shared__ float scratch[kThreads / 32];
  const int64_t row = int64_t{blockIdx.x} * kBlockRows + threadIdx.x / kRowThreads;
  const int n = static_cast<int>(params.x.cols);
  const bool has_row = row < params.x.rows;
  uint32_t words[kChunks][4];
  float sum = 0;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = (chunk * kRowThreads + threadIdx.x % kRowThreads) * 8;
    Vector16 value = {0, 0, 0, 0};
    if (has_row && column < n) value = Load16(params.x.Row(row) + column);
    words[chunk][0] = value.x;
    words[chunk][1] = value.y;
    words[chunk][2] = value.z;
    words[chunk][3] = value.w;
  }
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
    for (const uint32_t pair : words[chunk]) {
      sum = __fmaf_rn(LowBf16(pair), LowBf16(pair), sum);
      sum = __fmaf_rn(HighBf16(pair), HighBf16(pair), sum);
    }
  }
  sum = kRowThreads == 32 ? LaneSum<32>(sum) : BlockSum<kThreads / 32>(sum, scratch);
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, n) + params.eps));
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = (chunk * kRowThreads + threadIdx.x % kRowThreads) * 8;
    const bool active = has_row && column < n;
    if (active) {
      const Vector16 w = Load16(params.weight + column);
      const uint32_t weights[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t& pair = words[chunk][k];
        pair = PackBf16(__fmul_rn(LowBf16(weights[k]), __fmul_rn(LowBf16(pair), factor)),
                        __fmul_rn(HighBf16(weights[k]), __fmul_rn(HighBf16(pair), factor)));
      }
      if (params.y.data != nullptr) {
        const uint32_t* out = words[chunk];
        Store16(params.y.Row(row) + column, {out[0], out[1], out[2], out[3]});
      }
    }
    if (params.quantized.codes != nullptr) {
      StoreFp8(params.quantized, row, column, active, words[chunk]);
    }
  }
}

template <int kRowThreads, int kChunks>
void Launch(const RmsNormParams& params, CUstream_st* stream) {
  constexpr int kBlockRows = kThreads / kRowThreads;
  const int64_t blocks = (params.x.rows + kBlockRows - 1) / kBlockRows;
  LaunchClosely(RmsNormKernel<kRowThreads, kChunks>,
                {dim3(static_cast<unsigned>(blocks)), kThreads}, stream, params);
}

}  // namespace

void RmsNorm(const RmsNormParams& params, CUstream_st* stream) {
  const int64_t n = params.x.cols;
  BATON_CHECK(n % 8 == 0 && n <= kMaxWidth && params.x.stride % 8 == 0) << "width " << n;
  BATON_CHECK(params.y.data == nullptr || (params.y.cols == n && params.y.stride % 8 == 0));
  BATON_CHECK(params.quantized.codes == nullptr ||
              (n % kActivationGroup == 0 && params.quantized.cols == n &&
               params.quantized.rows == params.x.rows && params.quantized.stride % 16 == 0 &&
               params.quantized.scale_stride >= params.x.rows))
      << "width " << n << " into " << params.quantized.cols << ", scale stride "
      << params.quantized.scale_stride;
  if (params.x.rows == 0) return;
  if (n <= 512) {
    Launch<32, 2>(params, stream);
  } else if (n <= 1024) {
    Launch<32, 4>(params, stream);
  } else if (n <= 1536) {
    Launch<32, 6>(params, stream);
  } else if (n <= 2048) {
    Launch<32, 8>(params, stream);
  } else if (n <= 4096) {
    Launch<kThreads, 2>(params, stream);
  } else {
    Launch<kThreads, 4>(params, stream);
  }
  CheckLaunch("RmsNorm");
}

}  // namespace baton::kernels::cuda
