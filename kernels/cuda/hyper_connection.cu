#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/hyper_connection.h"
#include "kernels/cuda/hyper_projection.cuh"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kMixTiles = kMixes / 8;
constexpr int kHeadTiles = 1;
constexpr int kMaxChunks = 4;  // D <= 8 * kThreads * kMaxChunks
constexpr int64_t kWidthUnit = int64_t{HcProjection<1>::kStep} * kGroups;  // of 4 D

int Tiles(int mixes) { return (mixes + 7) / 8; }

// A thread eight channels of one mix, all parts.
__global__ void PackHcFnKernel(MatrixView<const float> fn, int tiles, Vector16* packed) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int lane = static_cast<int>(index % 32);
  const int tile = static_cast<int>(index / 32 % tiles);
  const int64_t block = index / 32 / tiles;  // of 32 channels
  if (block * 32 >= fn.cols) return;
  const int mix = 8 * tile + lane / 4;
  float rest[8];
  for (int i = 0; i < 8; ++i) {
    rest[i] = mix < fn.rows ? fn.Row(mix)[block * 32 + lane % 4 * 8 + i] : 0.0f;
  }
  for (int part = 0; part < kFnParts; ++part) {
    uint32_t words[4];
    for (int k = 0; k < 4; ++k) {
      words[k] = PackBf16(rest[2 * k], rest[2 * k + 1]);
      rest[2 * k] -= LowBf16(words[k]);
      rest[2 * k + 1] -= HighBf16(words[k]);
    }
    packed[((block * tiles + tile) * kFnParts + part) * 32 + lane] = {words[0], words[1], words[2],
                                                                      words[3]};
  }
}

struct ReadParams {
  MatrixView<const BFloat16> streams;
  MatrixView<BFloat16> x;
  const float* partial = nullptr;  // [kGroups * group_parts, rows, columns]
  int group_parts = 1;             // 1 or kGroupSegments
  const float* scale = nullptr;
  const float* base = nullptr;
  float norm_eps = 0;
  float hc_eps = 0;
  int iterations = 0;  // kMixTiles only, as the outputs below
  float* post = nullptr;
  float* comb = nullptr;
};

__device__ inline float Sigmoid(float x) { return __fdiv_rn(1.0f, 1.0f + expf(-x)); }

// Column `column` of a row's projection; kParts partial sums make a group.
template <int kColumns, int kParts>
__device__ float SumPartials(const ReadParams& params, int64_t row, int column) {
  const float* source = params.partial + row * kColumns + column;
  const int64_t stride = params.streams.rows * kColumns;
  float sums[kGroups];
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    float parts[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      parts[part] = source[(group * kParts + part) * stride];
    }
    sums[group] = parts[0];
#pragma unroll
    for (int part = 1; part < kParts; ++part) sums[group] += parts[part];
  }
  float total = sums[0];
#pragma unroll
  for (int group = 1; group < kGroups; ++group) total += sums[group];
  return total;
}

// Lanes 4 j + k < 16 hold A_jk and return C_jk.
__device__ float Sinkhorn(float a, int iterations, float eps) {
  const auto over = [](float v, int distance, auto&& combine) {
    v = combine(v, __shfl_xor_sync(kFullWarp, v, distance));
    return combine(v, __shfl_xor_sync(kFullWarp, v, 2 * distance));
  };
  const auto sum = [](float u, float v) { return u + v; };
  const auto larger = [](float u, float v) { return fmaxf(u, v); };
  constexpr int kRow = 1;
  constexpr int kColumn = 4;
  float c = expf(a - over(a, kRow, larger));
  c = __fdiv_rn(c, over(c, kRow, sum)) + eps;
  c = __fdividef(c, over(c, kColumn, sum) + eps);
  // The last normalisation undoes an error of those before it: 2 ulp a division do no harm.
  for (int i = 1; i < iterations; ++i) {
    c = __fdividef(c, over(c, kRow, sum) + eps);
    c = __fdividef(c, over(c, kColumn, sum) + eps);
  }
  return c;
}

// One warp: turns a row's projection into `pre`, and into the outputs post and comb.
template <int kTiles>
__device__ void Mix(const ReadParams& params, int64_t row, float* pre) {
  constexpr int kColumns = HcProjection<kTiles>::kColumns;
  const int lane = threadIdx.x % 32;
  // Lanes 0 to 15 take C, 16 to 19 pre, 20 to 23 post; the last lane the sum of squares.
  constexpr bool kHead = kTiles == kHeadTiles;
  int column = lane < 16 ? 2 * kStreams + lane : lane - 16;
  if (lane >= 24) column = 8 * kTiles;
  if (kHead && lane < 16) column = 0;
  const float value = params.group_parts == kGroupSegments
                          ? SumPartials<kColumns, kGroupSegments>(params, row, column)
                          : SumPartials<kColumns, 1>(params, row, column);
  const float squares = __shfl_sync(kFullWarp, value, 31);
  const float mean = __fdiv_rn(squares, static_cast<float>(params.streams.cols));
  const float r = __fdiv_rn(1.0f, __fsqrt_rn(mean + params.norm_eps));
  const int part = kHead || lane - 16 < kStreams ? 0 : 1;
  const bool mixes = lane < 16;
  const float scale = params.scale[kHead ? 0 : mixes ? 2 : part];
  const float base = lane < 24 ? params.base[kHead ? column % kStreams : column] : 0.0f;
  const float m = __fadd_rn(__fmul_rn(__fmul_rn(value, r), scale), base);
  if constexpr (!kHead) {
    const float c = Sinkhorn(m, params.iterations, params.hc_eps);
    if (mixes) params.comb[row * kStreams * kStreams + lane] = c;
    if (lane >= 20 && lane < 24) {
      params.post[row * kStreams + lane - 20] = 2.0f * Sigmoid(m);
    }
  }
  if (lane >= 16 && lane < 20) pre[lane - 16] = Sigmoid(m) + params.hc_eps;
}

// A block a row: the streams travel while one warp mixes. Last rows first: they were read last by
// the projection and may still lie in the L2 cache.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) HcReadKernel(const ReadParams params) {
  __shared__ float pre[kStreams];
  const int64_t row = params.streams.rows - 1 - blockIdx.x;
  const int64_t d = params.x.cols;
  const BFloat16* streams = params.streams.Row(row);
  const int first = static_cast<int>(threadIdx.x) * 8;
  constexpr int kAhead = 2;  // chunks that are loaded before the mix is known
  Vector16 ahead[kAhead][kStreams];
#pragma unroll
  for (int chunk = 0; chunk < kAhead; ++chunk) {
    const int column = first + chunk * kThreads * 8;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      ahead[chunk][j] = {0, 0, 0, 0};
      if (column < d) ahead[chunk][j] = LoadStreaming16(streams + j * d + column);
    }
  }
  if (threadIdx.x < 32) Mix<kTiles>(params, row, pre);
  __syncthreads();
#pragma unroll
  for (int chunk = 0; chunk < kMaxChunks; ++chunk) {
    const int column = first + chunk * kThreads * 8;
    if (column >= d) continue;
    float sum[8];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const Vector16 u =
          chunk < kAhead ? ahead[chunk][j] : LoadStreaming16(streams + j * d + column);
      const uint32_t words[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float v = k % 2 == 0 ? LowBf16(words[k / 2]) : HighBf16(words[k / 2]);
        sum[k] = j == 0 ? __fmul_rn(pre[0], v) : __fmaf_rn(pre[j], v, sum[k]);
      }
    }
    Store16(params.x.Row(row) + column, {PackBf16(sum[0], sum[1]), PackBf16(sum[2], sum[3]),
                                         PackBf16(sum[4], sum[5]), PackBf16(sum[6], sum[7])});
  }
}

// A thread eight channels of all streams.
__global__ void __launch_bounds__(kThreads) HcPostKernel(const HcPostParams params) {
  const int64_t row = blockIdx.x;
  const int64_t d = params.output.cols;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 8;
  if (column >= d) return;
  BFloat16* streams = params.streams.Row(row) + column;
  const Vector16 output = LoadStreaming16(params.output.Row(row) + column);
  Vector16 x[kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) x[j] = LoadStreaming16(streams + j * d);
  const float4* comb = reinterpret_cast<const float4*>(params.comb + row * kStreams * kStreams);
  const float4 post = *reinterpret_cast<const float4*>(params.post + row * kStreams);
  float4 c[kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) c[j] = comb[j];
  const auto word = [](const Vector16& v, int k) {
    return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w;
  };
  const auto lane = [](const float4& v, int k) {
    return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w;
  };
#pragma unroll
  for (int stream = 0; stream < kStreams; ++stream) {
    uint32_t result[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float low = __fmul_rn(lane(post, stream), LowBf16(word(output, k)));
      float high = __fmul_rn(lane(post, stream), HighBf16(word(output, k)));
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        low = __fmaf_rn(lane(c[j], stream), LowBf16(word(x[j], k)), low);
        high = __fmaf_rn(lane(c[j], stream), HighBf16(word(x[j], k)), high);
      }
      result[k] = PackBf16(low, high);
    }
    Store16(streams + stream * d, {result[0], result[1], result[2], result[3]});
  }
}

void CheckShapes(MatrixView<const BFloat16> streams, int64_t d) {
  BATON_CHECK(streams.cols == kStreams * d && streams.cols % kWidthUnit == 0 &&
              d <= 8 * kThreads * kMaxChunks && streams.stride % 8 == 0)
      << "no kernel for streams of width " << d;
}

// Fills params.partial, then reads.
template <int kTiles>
void ProjectAndRead(ReadParams params, const void* fn, void* scratch, CUstream_st* stream) {
  using Projection = HcProjection<kTiles>;
  CheckShapes(params.streams, params.x.cols);
  const int64_t rows = params.streams.rows;
  if (rows == 0) return;
  const int64_t blocks = (rows + Projection::kBlockRows - 1) / Projection::kBlockRows;
  const int all_steps = static_cast<int>(params.streams.cols) / Projection::kStep;
  const int group_segments = all_steps % (kGroups * kGroupSegments) == 0 ? kGroupSegments : 1;
  const int segments = kGroups * group_segments;
  constexpr int kRuns = 4;  // of channels, when rows make many blocks
  const bool by_segment = blocks * kRuns < CurrentDevice().multiprocessors;
  params.group_parts = by_segment ? group_segments : 1;
  params.partial = static_cast<const float*>(scratch);
  const auto kernel = by_segment ? HcProjectKernel<kTiles, true> : HcProjectKernel<kTiles, false>;
  CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 Projection::kSharedBytes),
            "cudaFuncSetAttribute");
  const dim3 grid(static_cast<unsigned>(blocks), by_segment ? segments : kRuns);
  kernel<<<grid, Projection::kThreads, Projection::kSharedBytes, stream>>>(
      params.streams, static_cast<const Vector16*>(fn), segments, static_cast<float*>(scratch));
  CheckLaunch("HcProject");
  HcReadKernel<kTiles><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(params);
  CheckLaunch("HcRead");
}

}  // namespace

int64_t HcFnBytes(int mixes, int64_t width) { return width * Tiles(mixes) * 8 * kFnParts * 2; }

void PackHcFn(MatrixView<const float> fn, void* packed, CUstream_st* stream) {
  BATON_CHECK(fn.cols % kWidthUnit == 0) << "width " << fn.cols;
  const int tiles = Tiles(static_cast<int>(fn.rows));
  const int64_t threads = fn.cols * tiles;
  PackHcFnKernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0,
                   stream>>>(fn, tiles, static_cast<Vector16*>(packed));
  CheckLaunch("PackHcFn");
}

int64_t HcScratchBytes(int64_t rows) {
  constexpr int64_t kRowBytes = HcProjection<kMixTiles>::kColumns * sizeof(float);
  // Above this number of rows a partial sum stands for a whole group.
  const int64_t few = int64_t{CurrentDevice().multiprocessors} * HcProjection<1>::kBlockRows;
  return kRowBytes * kGroups * std::max(rows, kGroupSegments * std::min(rows, few));
}

void HcPre(const HcPreParams& params, CUstream_st* stream) {
  ProjectAndRead<kMixTiles>({.streams = params.streams,
                             .x = params.x,
                             .scale = params.scale,
                             .base = params.base,
                             .norm_eps = params.norm_eps,
                             .hc_eps = params.hc_eps,
                             .iterations = params.iterations,
                             .post = params.post,
                             .comb = params.comb},
                            params.fn, params.scratch, stream);
}

void HcPost(const HcPostParams& params, CUstream_st* stream) {
  const int64_t d = params.output.cols;
  BATON_CHECK(params.streams.cols == kStreams * d && d % 8 == 0 &&
              params.streams.rows == params.output.rows && params.streams.stride % 8 == 0 &&
              params.output.stride % 8 == 0)
      << "width " << params.streams.cols;
  if (params.output.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(params.output.rows),
                  static_cast<unsigned>((d / 8 + kThreads - 1) / kThreads));
  HcPostKernel<<<grid, kThreads, 0, stream>>>(params);
  CheckLaunch("HcPost");
}

void HcHead(const HcHeadParams& params, CUstream_st* stream) {
  ProjectAndRead<kHeadTiles>({.streams = params.streams,
                              .x = params.x,
                              .scale = params.scale,
                              .base = params.base,
                              .norm_eps = params.norm_eps,
                              .hc_eps = params.hc_eps},
                             params.fn, params.scratch, stream);
}

}  // namespace baton::kernels::cuda
