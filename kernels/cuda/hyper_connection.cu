#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/hyper_connection.h"
#include "kernels/cuda/hyper_projection.h"
#include "kernels/cuda/variants.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kMixTiles = kMixes / 8;
constexpr int kHeadTiles = 1;
constexpr int64_t kWidthUnit = int64_t{kHcStep} * kGroups;  // of 4 D
constexpr int kProjectRows = 128;                           // of a block of the projection

int Tiles(int mixes) { return (mixes + 7) / 8; }

// Where eight channels of a part of a mix go, in units of 16 bytes: `block` of 32 channels, lane
// 4 (mix % 8) + channels / 8.
__device__ int64_t FnPlace(bool wgmma, int64_t block, int tiles, int tile, int part, int lane) {
  if (!wgmma) return ((block * tiles + tile) * kFnParts + part) * 32 + lane;
  const int row = (part * tiles + tile) * 8 + lane / 4;
  const int piece = static_cast<int>(block % 2) * 4 + lane % 4;
  return block / 2 * (kFnParts * tiles * 64) + SwizzledOffset(row, piece) / 16;
}

// A thread eight channels of one mix, all parts.
__global__ void PackHcFnKernel(MatrixView<const float> fn, int tiles, bool wgmma,
                               Vector16* packed) {
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
    packed[FnPlace(wgmma, block, tiles, tile, part, lane)] = {words[0], words[1], words[2],
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
  constexpr int kColumns = HcColumns<kTiles>;
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

// A block kReadRows rows, or one when there are few: a warp mixes each, then all read their
// streams. Last rows first: they were read last by the projection and may still lie in the L2
// cache.
constexpr int kReadRows = 4;

template <int kTiles>
__global__ void __launch_bounds__(kThreads) HcReadKernel(const ReadParams params, int block_rows) {
  AwaitPredecessors();
  __shared__ float pre[kReadRows][kStreams];
  const int64_t last = params.streams.rows - 1 - int64_t{blockIdx.x} * block_rows;
  const int64_t d = params.x.cols;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < block_rows && last >= warp) Mix<kTiles>(params, last - warp, pre[warp]);
  __syncthreads();
  for (int i = 0; i < block_rows && last >= i; ++i) {
    const BFloat16* streams = params.streams.Row(last - i);
    BFloat16* x = params.x.Row(last - i);
#pragma unroll 2
    for (int64_t column = threadIdx.x * 8; column < d; column += kThreads * 8) {
      Vector16 u[kStreams];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) u[j] = LoadStreaming16(streams + j * d + column);
      float sum[8];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        const uint32_t words[4] = {u[j].x, u[j].y, u[j].z, u[j].w};
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const float v = k % 2 == 0 ? LowBf16(words[k / 2]) : HighBf16(words[k / 2]);
          sum[k] = j == 0 ? __fmul_rn(pre[i][0], v) : __fmaf_rn(pre[i][j], v, sum[k]);
        }
      }
      Store16(x + column, {PackBf16(sum[0], sum[1]), PackBf16(sum[2], sum[3]),
                           PackBf16(sum[4], sum[5]), PackBf16(sum[6], sum[7])});
    }
  }
}

// A thread eight channels of all streams.
__global__ void __launch_bounds__(kThreads) HcPostKernel(const HcPostParams params) {
  AwaitPredecessors();
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
              streams.stride % 8 == 0)
      << "no kernel for streams of width " << d;
}

// Fills params.partial, then reads.
template <int kTiles>
void ProjectAndRead(ReadParams params, const void* fn, void* scratch, CUstream_st* stream) {
  CheckShapes(params.streams, params.x.cols);
  const int64_t rows = params.streams.rows;
  if (rows == 0) return;
  const int64_t blocks = (rows + kProjectRows - 1) / kProjectRows;
  const int all_steps = static_cast<int>(params.streams.cols) / kHcStep;
  const int group_segments = all_steps % (kGroups * kGroupSegments) == 0 ? kGroupSegments : 1;
  const int segments = kGroups * group_segments;
  constexpr int kRuns = 4;  // of channels, when rows make many blocks
  const bool by_segment = blocks * kRuns < CurrentDevice().multiprocessors;
  params.group_parts = by_segment ? group_segments : 1;
  params.partial = static_cast<const float*>(scratch);
  const auto project = HasSm90a() ? HcProjectSm90a<kTiles> : HcProjectPortable<kTiles>;
  project({.streams = params.streams,
           .fn = fn,
           .segments = segments,
           .by_segment = by_segment,
           .runs = static_cast<unsigned>(by_segment ? segments : kRuns),
           .partial = static_cast<float*>(scratch)},
          stream);
  const int block_rows = rows >= 8 * CurrentDevice().multiprocessors ? kReadRows : 1;
  const int64_t read_blocks = (rows + block_rows - 1) / block_rows;
  LaunchClosely(HcReadKernel<kTiles>, {dim3(static_cast<unsigned>(read_blocks)), kThreads}, stream,
                params, block_rows);
  CheckLaunch("HcRead");
}

}  // namespace

int64_t HcFnBytes(int mixes, int64_t width) { return width * Tiles(mixes) * 8 * kFnParts * 2; }

void PackHcFn(MatrixView<const float> fn, void* packed, CUstream_st* stream) {
  BATON_CHECK(fn.cols % kWidthUnit == 0) << "width " << fn.cols;
  const int tiles = Tiles(static_cast<int>(fn.rows));
  const int64_t threads = fn.cols * tiles;
  PackHcFnKernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0,
                   stream>>>(fn, tiles, HasSm90a(), static_cast<Vector16*>(packed));
  CheckLaunch("PackHcFn");
}

int64_t HcScratchBytes(int64_t rows) {
  constexpr int64_t kSumsBytes = HcColumns<kMixTiles> * sizeof(float);
  return rows * kGroups * kGroupSegments * kSumsBytes;
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
  LaunchClosely(HcPostKernel, {grid, kThreads}, stream, params);
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
