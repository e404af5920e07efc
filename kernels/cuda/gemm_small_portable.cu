#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/gemm_small.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

using Bf16 = __nv_bfloat16;
using Fp8 = __nv_fp8_e4m3;

constexpr int kWarps = 8;
constexpr int kPanelRows = 16;  // of w, per block
constexpr int kChunkBytes = SmallGemmParams::kChunkBytes;
constexpr int kPieces = 2;  // of 16 bytes that a lane loads of a chunk's row

// Weights are the left operand: 16 of their rows by 8 tokens. Within a chunk the columns are taken
// in the order in which 16-byte loads bring them, the same for both operands: lane i has bytes
// 16 (i % 4) .. of each 64-byte half, four columns of which go to one product.
__device__ uint32_t WidenToHalf(uint32_t codes) {
  uint32_t pair;
  asm("{\n.reg .b16 low;\ncvt.u16.u32 low, %1;\ncvt.rn.f16x2.e4m3x2 %0, low;\n}\n"
      : "=r"(pair)
      : "r"(codes));
  return pair;
}
__device__ uint32_t WidenToBf16(uint32_t codes) {
  const float2 values = UnpackE4m3(static_cast<uint16_t>(codes));
  return PackBf16(values.x, values.y);
}
__device__ void MmaHalf16x8x16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// What a lane loads of a chunk.
template <typename W, typename X, int kTiles>
struct Operands {
  static constexpr int kXPieces = kPieces * sizeof(X) / sizeof(W);
  Vector16 w[2][kPieces];        // rows i / 4 and i / 4 + 8
  Vector16 x[kTiles][kXPieces];  // token i / 4 of each tile
};

__device__ uint32_t Word(const Vector16& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <typename W, typename X, int kTiles>
__device__ void Multiply(const Operands<W, X, kTiles>& in, float (&d)[kTiles][4]) {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const Vector16& w0 = in.w[0][piece];
    const Vector16& w1 = in.w[1][piece];
    if constexpr (sizeof(W) == 2) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t a[4] = {Word(w0, i), Word(w1, i), Word(w0, i + 1), Word(w1, i + 1)};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const Vector16& x = in.x[tile][piece];
          Mma16x8x16(d[tile], a, Word(x, i), Word(x, i + 1));
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t words[4] = {Word(w0, i), Word(w1, i), Word(w0, i) >> 16, Word(w1, i) >> 16};
        uint32_t a[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          a[r] = sizeof(X) == 1 ? WidenToHalf(words[r]) : WidenToBf16(words[r]);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          if constexpr (sizeof(X) == 1) {
            const uint32_t x = Word(in.x[tile][piece], i);
            MmaHalf16x8x16(d[tile], a, WidenToHalf(x), WidenToHalf(x >> 16));
          } else {
            const Vector16& x = in.x[tile][2 * piece + i / 2];
            Mma16x8x16(d[tile], a, Word(x, i % 2 * 2), Word(x, i % 2 * 2 + 1));
          }
        }
      }
    }
  }
}

__device__ void Store(Bf16* y, float value) { *y = __float2bfloat16_rn(value); }
__device__ void Store(float* y, float value) { *y = value; }

// Walks through the chunks of a warp, panel after panel.
template <typename W, typename X, int kTiles>
class Reader {
 public:
  using In = Operands<W, X, kTiles>;
  static constexpr int kColumns = kChunkBytes / static_cast<int>(sizeof(W));

  __device__ Reader(const SmallGemmParams& params, int panels)
      : params_(params),
        panels_(panels),
        chunks_(static_cast<int>(params.k) / kColumns),
        panel_(blockIdx.x),
        chunk_(threadIdx.x / 32) {}

  // The next chunk, if there is one: its weights first, then the tokens.
  __device__ void LoadWeights(In& in) const {
    if (!HasChunk()) return;
    const int lane = threadIdx.x % 32;
    const int group = panel_ / panels_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Rows past the end are read as the last one, and their results dropped.
      const int row =
          min(panel_ % panels_ * kPanelRows + half * 8 + lane / 4, static_cast<int>(params_.n) - 1);
      const std::byte* w = static_cast<const std::byte*>(params_.w) +
                           (group * params_.n + row) * params_.k * int64_t{sizeof(W)} +
                           chunk_ * kChunkBytes + lane % 4 * 16;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        in.w[half][piece] = LoadStreaming16(w + piece * 64);
      }
    }
  }
  __device__ void LoadTokens(In& in) {
    if (HasChunk()) LoadTokensOfChunk(in);
    chunk_ += kWarps;
    if (chunk_ < chunks_) return;
    chunk_ = threadIdx.x / 32;
    panel_ += gridDim.x;
  }

 private:
  __device__ bool HasChunk() const { return chunk_ < chunks_ && panel_ < panels_ * params_.groups; }
  __device__ void LoadTokensOfChunk(In& in) const {
    const int lane = threadIdx.x % 32;
    const int group = panel_ / panels_;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int row = min(tile * 8 + lane / 4, params_.rows - 1);
      const std::byte* x = static_cast<const std::byte*>(params_.x) +
                           (row * params_.x_stride + group * params_.x_group + chunk_ * kColumns) *
                               int64_t{sizeof(X)} +
                           lane % 4 * 16 * sizeof(X) / sizeof(W);
#pragma unroll
      for (int piece = 0; piece < In::kXPieces; ++piece) {
        // Two pieces of x for one of w are neighbours.
        const int offset = In::kXPieces == kPieces ? piece * 64 : piece / 2 * 128 + piece % 2 * 16;
        in.x[tile][piece] = Load16(x + offset);
      }
    }
  }

  const SmallGemmParams& params_;
  int panels_;  // of a group
  int chunks_;
  int panel_;
  int chunk_;
};

// total += the chunk's product, scaled if the weights are FP8.
template <typename W, typename X, int kTiles>
__device__ void AddChunk(const SmallGemmParams& params, const Operands<W, X, kTiles>& in,
                         int64_t w_row, int64_t chunk, float (&total)[kTiles][4]) {
  if constexpr (sizeof(W) == 2) {
    Multiply(in, total);
  } else {
    float part[kTiles][4] = {};
    Multiply(in, part);
    const float w_scale = params.w_scales[w_row / 128 * params.w_scale_stride + chunk];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float2 scale = {w_scale, w_scale};
      if constexpr (sizeof(X) == 1) {
        const float2 x_scale = *reinterpret_cast<const float2*>(
            params.x_scales + chunk * params.x_scale_stride + 8 * tile + threadIdx.x % 4 * 2);
        scale = {w_scale * x_scale.x, w_scale * x_scale.y};
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[tile][i] = __fmaf_rn(part[tile][i], i % 2 == 0 ? scale.x : scale.y, total[tile][i]);
      }
    }
  }
}

template <typename W, typename X, int kTiles>
constexpr int kBlocksPerMultiprocessor = kTiles * sizeof(X) > 2 * sizeof(W) ? 1
                                         : kTiles * sizeof(X) > sizeof(W)   ? 2
                                                                            : 3;

// A block takes every gridDim.x-th panel; its warps share a panel's chunks. The loads of a chunk
// are issued before the one before it is multiplied, across panels too: short rows would otherwise
// leave the memory idle while a panel is summed up.
template <typename W, typename X, typename Y, int kTiles>
__global__ void __launch_bounds__(32 * kWarps, kBlocksPerMultiprocessor<W, X, kTiles>)
    SmallProduct(SmallGemmParams params, int panels) {
  using In = Operands<W, X, kTiles>;
  __shared__ float sums[2][kWarps][8 * kTiles][kPanelRows + 1];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int chunks = static_cast<int>(params.k) / Reader<W, X, kTiles>::kColumns;
  Reader<W, X, kTiles> reader(params, panels);
  In next;
  reader.LoadWeights(next);
  AwaitPredecessors();
  reader.LoadTokens(next);
  int turn = 0;
  for (int panel = blockIdx.x; panel < panels * params.groups; panel += gridDim.x, turn ^= 1) {
    const int group = panel / panels;
    const int first_row = panel % panels * kPanelRows;
    float total[kTiles][4] = {};
    int chunk = warp;
    do {  // a warp without a chunk has a turn too, as Reader counts
      const In in = next;
      reader.LoadWeights(next);
      reader.LoadTokens(next);
      if (chunk < chunks) AddChunk(params, in, group * params.n + first_row, chunk, total);
      chunk += kWarps;
    } while (chunk < chunks);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[turn][warp][8 * tile + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = total[tile][i];
      }
    }
    __syncthreads();  // the one of the panel before: whoever passes it has read what this
                      // overwrites
    const int row = first_row + threadIdx.x % kPanelRows;
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {  // 16 tokens at a time
      const int token = 8 * tile + threadIdx.x / kPanelRows;
      if (token >= params.rows || token >= 8 * kTiles || row >= params.n) continue;
      float sum = 0;
#pragma unroll
      for (int from = 0; from < kWarps; ++from) {
        sum += sums[turn][from][token][threadIdx.x % kPanelRows];
      }
      Store(static_cast<Y*>(params.y) + token * params.y_stride + group * params.n + row, sum);
    }
  }
}

template <typename W, typename X, typename Y>
void Launch(const SmallGemmParams& params, CUstream_st* stream) {
  const int panels = static_cast<int>((params.n + kPanelRows - 1) / kPanelRows);
  const auto launch = [&]<int kTiles>() {
    const int blocks = kBlocksPerMultiprocessor<W, X, kTiles> * CurrentDevice().multiprocessors;
    const int grid = std::min(panels * params.groups, blocks);
    LaunchClosely(SmallProduct<W, X, Y, kTiles>, {dim3(grid), 32 * kWarps}, stream, params, panels);
  };
  if (params.rows <= 8) {
    launch.template operator()<1>();
  } else if (params.rows <= 16) {
    launch.template operator()<2>();
  } else {
    launch.template operator()<4>();
  }
  CheckLaunch("SmallProduct");
}

template <typename W, typename X>
void LaunchFor(const SmallGemmParams& params, CUstream_st* stream) {
  if (params.y_format == SmallGemmParams::Format::kF32) return Launch<W, X, float>(params, stream);
  Launch<W, X, Bf16>(params, stream);
}

}  // namespace

void SmallGemmPortable(const SmallGemmParams& params, CUstream_st* stream) {
  using Format = SmallGemmParams::Format;
  if (params.w_format != Format::kFp8) return LaunchFor<Bf16, Bf16>(params, stream);
  if (params.x_format != Format::kFp8) return LaunchFor<Fp8, Bf16>(params, stream);
  LaunchFor<Fp8, Fp8>(params, stream);
}

}  // namespace baton::kernels::cuda
