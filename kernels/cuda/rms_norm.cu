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

__device__ void LoadWords(const BFloat16* source, bool exists, uint32_t (&words)[4]) {
  Vector16 value = {0, 0, 0, 0};
  if (exists) value = Load16(source);
  words[0] = value.x;
  words[1] = value.y;
  words[2] = value.z;
  words[3] = value.w;
}

// Blocks of a multiprocessor that registers are to leave room for.
template <int kRowThreads, int kChunks>
constexpr int kResident = kRowThreads > 32 || kChunks <= 2 ? 5
                          : kChunks <= 6                   ? 4
                                                           : 2;

// kRowThreads threads share a row, kChunks times 8 columns each; a row lies in registers between
// the two passes. Each step is made for all chunks before the next begins, so that their latencies
// run together.
template <int kRowThreads, int kChunks>
__global__ void __launch_bounds__(kThreads, kResident<kRowThreads, kChunks>)
    RmsNormKernel(const RmsNormParams params) {
  constexpr int kBlockRows = kThreads / kRowThreads;
  __shared__ float scratch[kThreads / 32];
  const int64_t row = int64_t{blockIdx.x} * kBlockRows + threadIdx.x / kRowThreads;
  const int n = static_cast<int>(params.x.cols);
  const bool has_row = row < params.x.rows;
  const int first = threadIdx.x % kRowThreads * 8;
  constexpr int kStep = kRowThreads * 8;  // columns between chunks
  uint32_t words[kChunks][4];
  uint32_t weights[kChunks][4];
  const auto load_weights = [&](int chunk) {
    const int column = first + chunk * kStep;
    LoadWords(params.weight + column, column < n, weights[chunk]);
  };
  constexpr bool kWeightsFirst = kChunks <= (kRowThreads == 32 ? 4 : 2);  // registers allow that
  if constexpr (kWeightsFirst) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) load_weights(chunk);
  }
  AwaitPredecessors();
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = first + chunk * kStep;
    LoadWords(params.x.Row(row) + column, has_row && column < n, words[chunk]);
  }
  float sum = 0;
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
    if constexpr (!kWeightsFirst) load_weights(chunk);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t& pair = words[chunk][k];
      const uint32_t weight = weights[chunk][k];
      pair = PackBf16(__fmul_rn(LowBf16(weight), __fmul_rn(LowBf16(pair), factor)),
                      __fmul_rn(HighBf16(weight), __fmul_rn(HighBf16(pair), factor)));
    }
  }
  if (params.y.data != nullptr && has_row) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const uint32_t* out = words[chunk];
      const int column = first + chunk * kStep;
      if (column < n) Store16(params.y.Row(row) + column, {out[0], out[1], out[2], out[3]});
    }
  }
  if (params.quantized.codes == nullptr) return;
  float scale[kChunks];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) scale[chunk] = Fp8GroupScale(words[chunk]);
  if (!has_row) return;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = first + chunk * kStep;
    if (column < n) StoreFp8(params.quantized, row, column, words[chunk], scale[chunk]);
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
