#include <algorithm>
#include <bit>

#include <cuda_bf16.h>

#include "common/base/check.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/gemm_small.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

// The weights are the left operand, so that one warpgroup multiplies up to 64 of their rows by all
// tokens of a tile; another fetches. No sum is cut: it is one chain over ascending k, as cuBLASLt's
// are, so that the bits are the same. Instead panels have as few as 16 rows, where that keeps more
// multiprocessors busy; three quarters of the tensor cores' work are dropped then.
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kThreads = 2 * kGroup;
constexpr int kFetchers = kGroup / 32;  // warps; each brings every kFetchers-th chunk
constexpr int kChunkBytes = SmallGemmParams::kChunkBytes;
constexpr int kTileRows = 64;  // of w, that tensor cores read
constexpr int kRingBytes = 192 * 1024;
constexpr int kMaxStages = 32;
constexpr int kAheadBytes = 32 * 1024;  // of weights, brought before the tokens are there
constexpr int kAtOnce = 4;              // chunks that are waited for together

// kWidened: FP8 weights, which become BF16 in registers, with BF16 tokens.
enum class Product { kBf16, kFp8, kWidened };

template <Product kProduct, int kTokens, int kPanel>
struct Shared {
  static constexpr int kXBlocks = kProduct == Product::kWidened ? 2 : 1;  // of 128 bytes a token
  static constexpr int kWeightBytes = kPanel * kChunkBytes;
  static constexpr int kXBytes = kTokens * kChunkBytes;
  static constexpr int kStageBytes = kWeightBytes + kXBlocks * kXBytes;
  static constexpr int kStages =
      std::min<int>(kMaxStages, std::bit_floor<unsigned>(kRingBytes / kStageBytes));
  static_assert(kStages >= 2 * kAtOnce);

  alignas(1024) uint8_t stages[kStages][kStageBytes];
  // Rows past a panel are whatever lies there; their sums are dropped.
  uint8_t beyond[kTileRows * kChunkBytes];
  float scales[kStages][kTokens + 4];  // of the tokens, then of the weights
  StageRing<kStages> ring;

  __device__ int Offset(int n) const { return n % kStages * kStageBytes; }
};

// What a block computes at a time: some rows of w by some tokens.
struct Tile {
  int group;
  int first_row;  // of the group
  int first_token;
};

// All of a launch; those of the same weights are neighbours.
struct Tiles {
  int panels;       // of a group
  int token_tiles;  // of a panel
  int count;

  template <int kTokens, int kPanel>
  __device__ Tile At(int index) const {
    const int panel = index / token_tiles;
    return {panel / panels, panel % panels * kPanel, index % token_tiles * kTokens};
  }
};

// A lane copies 16 bytes of every fourth row: the rows' swizzle alternates between two.
template <int kRows>
__device__ void CopyRows(uint32_t to, const std::byte* from, int64_t stride, int valid_rows) {
  const int lane = threadIdx.x % 32;
  to += SwizzledOffset(lane / 8, lane % 8);
#pragma unroll
  for (int i = 0; i < kRows / 4; ++i) {
    CopyAsync16((to ^ (i % 2 * 64)) + i * 4 * kChunkBytes, from + i * 4 * stride,
                lane / 8 + 4 * i < valid_rows);
  }
}

template <Product kProduct, int kTokens, int kPanel>
__device__ void Fetch(const SmallGemmParams& params, const Tiles& tiles, int chunks,
                      Shared<kProduct, kTokens, kPanel>& shared) {
  using S = Shared<kProduct, kTokens, kPanel>;
  constexpr int kWeightSize = kProduct == Product::kBf16 ? 2 : 1;
  constexpr int kTokenSize = kProduct == Product::kFp8 ? 1 : 2;
  const int warp = threadIdx.x / 32 % kFetchers;
  const int lane = threadIdx.x % 32;
  const uint32_t ring = SharedAddress(shared.stages);
  const auto weights = [&](const Tile& tile) {
    return static_cast<const std::byte*>(params.w) +
           (tile.group * params.n + tile.first_row + lane / 8) * params.k * kWeightSize +
           lane % 8 * 16;
  };
  const auto copy_weights = [&](const Tile& tile, const std::byte* w, int chunk, int use) {
    CopyRows<kPanel>(ring + shared.Offset(use), w + chunk * kChunkBytes, params.k * kWeightSize,
                     static_cast<int>(params.n) - tile.first_row);
  };
  const int ahead = min(std::min(S::kStages, kAheadBytes / S::kWeightBytes), chunks);
  const Tile first = tiles.At<kTokens, kPanel>(blockIdx.x);
  for (int use = warp; use < ahead; use += kFetchers) {
    copy_weights(first, weights(first), use, use);
  }
  AwaitPredecessors();
  int n = warp;      // use of the ring
  int chunk = warp;  // may lie in a later tile
  for (int index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    const Tile tile = tiles.At<kTokens, kPanel>(index);
    const int tokens = params.rows - tile.first_token;
    const std::byte* w = weights(tile);
    const float* w_scales =
        params.w_scales + (tile.group * params.n + tile.first_row) / 128 * params.w_scale_stride;
    const std::byte* x =
        static_cast<const std::byte*>(params.x) +
        ((tile.first_token + lane / 8) * params.x_stride + tile.group * params.x_group) *
            kTokenSize +
        lane % 8 * 16;
    for (; chunk < chunks; chunk += kFetchers, n += kFetchers) {
      shared.ring.WaitEmpty(n);
      const uint32_t to = ring + shared.Offset(n);
      if (n >= ahead) copy_weights(tile, w, chunk, n);
#pragma unroll
      for (int block = 0; block < S::kXBlocks; ++block) {
        CopyRows<kTokens>(to + S::kWeightBytes + block * S::kXBytes,
                          x + (chunk * S::kXBlocks + block) * kChunkBytes,
                          params.x_stride * kTokenSize, tokens);
      }
      if constexpr (kProduct != Product::kBf16) {
        const uint32_t scales = SharedAddress(shared.scales[n % S::kStages]);
        if constexpr (kProduct == Product::kFp8) {
          const float* of_tokens =
              params.x_scales + chunk * params.x_scale_stride + tile.first_token;
#pragma unroll
          for (int token = lane; token < kTokens; token += 32) {
            CopyAsync4(scales + 4 * token, of_tokens + token, token < tokens);
          }
        }
        if (lane == 0) {
          CopyAsync4(scales + 4 * kTokens, w_scales + chunk, true);
        }
      }
      ArriveWhenCopied(&shared.ring.full[n % S::kStages]);
    }
    chunk -= chunks;
  }
}

// The multiplying warpgroup's side of the ring.
template <typename S>
struct Chunks {
  S& shared;
  uint64_t w = ChannelsSummed(UniformSharedAddress(shared.stages[0]));
  uint64_t x = Advanced(w, S::kWeightBytes);
  int n = 0;  // use of the ring

  __device__ uint64_t Weights(int use) const { return Advanced(w, shared.Offset(use)); }
  __device__ uint64_t Tokens(int use) const { return Advanced(x, shared.Offset(use)); }
  __device__ const float* Scales(int use) const { return shared.scales[use % S::kStages]; }
  template <int kCount>
  __device__ void Await(int use) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared.ring.WaitFull(use + i);
    FenceForTensorCores();
  }
  __device__ void Release(int use, int count) {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    for (int i = 0; i < count; ++i) shared.ring.ArriveEmpty(use + i);
  }
};

template <int kCount, typename S, int kSums>
__device__ void MultiplyBf16(Chunks<S>& chunks, bool first, float (&acc)[kSums]) {
  chunks.template Await<kCount>(chunks.n);
  WgmmaFence();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint64_t w = chunks.Weights(chunks.n + i);
    const uint64_t x = chunks.Tokens(chunks.n + i);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      Wgmma<false>(acc, Advanced(w, 32 * k), Advanced(x, 32 * k), !first || i > 0 || k > 0);
    }
  }
  WgmmaCommit();
}

template <int kTokens, int kPanel>
__device__ void MultiplyTile(Chunks<Shared<Product::kBf16, kTokens, kPanel>>& chunks, int count,
                             float (&acc)[kTokens / 2]) {
  int used = 0;  // by products that may not be over
  int chunk = 0;
  const auto advance = [&](int next) {
    WgmmaWait<1>();
    chunks.Release(chunks.n - used, used);
    chunks.n += next;
    chunk += next;
    used = next;
  };
  while (chunk + kAtOnce <= count) {
    MultiplyBf16<kAtOnce>(chunks, chunk == 0, acc);
    advance(kAtOnce);
  }
  while (chunk < count) {
    MultiplyBf16<1>(chunks, chunk == 0, acc);
    advance(1);
  }
  WgmmaWait<0>();
  KeepUntilHere(acc);
  chunks.Release(chunks.n - used, used);
}

template <int kCount, typename S, int kSums>
__device__ void MultiplyFp8(Chunks<S>& chunks, int use, float (&sums)[kCount][kSums]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      WgmmaFp8(sums[i], Advanced(chunks.Weights(use + i), 32 * k),
               Advanced(chunks.Tokens(use + i), 32 * k), k > 0);
    }
  }
  WgmmaCommit();
}

// A chunk's sum is scaled before it is added: tensor cores keep about 14 bits of it (WgmmaFp8).
template <int kTokens, typename S, int kCount>
__device__ void AddScaled(Chunks<S>& chunks, float (&sums)[kCount][kTokens / 2],
                          float (&acc)[kTokens / 2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    KeepUntilHere(sums[i]);
    const float* scales = chunks.Scales(chunks.n + i);
    const float w_scale = scales[kTokens];
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      const float2 x_scale = *reinterpret_cast<const float2*>(scales + 8 * j + threadIdx.x % 4 * 2);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const float scale = w_scale * (part % 2 == 0 ? x_scale.x : x_scale.y);
        acc[4 * j + part] = __fmaf_rn(sums[i][4 * j + part], scale, acc[4 * j + part]);
      }
    }
  }
  chunks.Release(chunks.n, kCount);
  chunks.n += kCount;
}

// The second half of some chunks is multiplied while the first is scaled.
template <int kTokens, int kPanel>
__device__ void MultiplyTile(Chunks<Shared<Product::kFp8, kTokens, kPanel>>& chunks, int count,
                             float (&acc)[kTokens / 2]) {
  constexpr int kHalf = kAtOnce / 2;
#pragma unroll
  for (float& value : acc) value = 0;
  int chunk = 0;
  for (; chunk + kAtOnce <= count; chunk += kAtOnce) {
    float first[kHalf][kTokens / 2];
    float second[kHalf][kTokens / 2];
    chunks.template Await<kAtOnce>(chunks.n);
    WgmmaFence();
    MultiplyFp8(chunks, chunks.n, first);
    MultiplyFp8(chunks, chunks.n + kHalf, second);
    WgmmaWait<1>();
    AddScaled<kTokens>(chunks, first, acc);
    WgmmaWait<0>();
    AddScaled<kTokens>(chunks, second, acc);
  }
  for (; chunk < count; ++chunk) {
    float sums[1][kTokens / 2];
    chunks.template Await<1>(chunks.n);
    WgmmaFence();
    MultiplyFp8(chunks, chunks.n, sums);
    WgmmaWait<0>();
    AddScaled<kTokens>(chunks, sums, acc);
  }
}

// The calling lane's codes of a chunk as BF16 fragments, times the chunk's scale, which is exact.
__device__ void WidenChunk(const uint8_t* tile, float scale, uint32_t (&a)[32]) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int slice = 0; slice < 8; ++slice) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const uint8_t* codes =
          tile + SwizzledOffset(row + part % 2 * 8, slice) + part / 2 * 8 + threadIdx.x % 4 * 2;
      const float2 values = UnpackE4m3(*reinterpret_cast<const uint16_t*>(codes));
      a[4 * slice + part] = PackBf16(values.x * scale, values.y * scale);
    }
  }
}

template <int kTokens, int kPanel>
__device__ void MultiplyTile(Chunks<Shared<Product::kWidened, kTokens, kPanel>>& chunks, int count,
                             float (&acc)[kTokens / 2]) {
  using S = Shared<Product::kWidened, kTokens, kPanel>;
  const auto widen = [&](int use, uint32_t(&to)[32]) {
    chunks.template Await<1>(use);
    WidenChunk(chunks.shared.stages[use % S::kStages], chunks.Scales(use)[kTokens], to);
  };
  uint32_t a[32];
  widen(chunks.n, a);
#pragma unroll 1
  for (int chunk = 0; chunk < count; ++chunk, ++chunks.n) {
    const uint64_t x = chunks.Tokens(chunks.n);
    KeepUntilHere(a);
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      Wgmma<false>(acc, a + 4 * k, Advanced(x, k / 4 * S::kXBytes + k % 4 * 32),
                   chunk > 0 || k > 0);
    }
    WgmmaCommit();
    uint32_t next[32];
    if (chunk + 1 < count) widen(chunks.n + 1, next);
    WgmmaWait<0>();
    KeepUntilHere(a);
    KeepUntilHere(acc);
    chunks.Release(chunks.n, 1);
#pragma unroll
    for (int i = 0; i < 32; ++i) a[i] = next[i];
  }
}

template <int kTokens, int kPanel>
__device__ void StoreTile(const SmallGemmParams& params, const Tile& tile,
                          const float (&acc)[kTokens / 2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int of_panel = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
    const int row = tile.first_row + of_panel;
    if (of_panel >= kPanel || row >= params.n) continue;
#pragma unroll
    for (int j = 0; j < kTokens / 4; ++j) {
      const int token = tile.first_token + j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
      if (token >= params.rows) continue;
      const int64_t place = token * params.y_stride + tile.group * params.n + row;
      const float value = acc[j / 2 * 4 + 2 * half + j % 2];
      if (params.y_format == SmallGemmParams::Format::kF32) {
        static_cast<float*>(params.y)[place] = value;
      } else {
        static_cast<__nv_bfloat16*>(params.y)[place] = __float2bfloat16_rn(value);
      }
    }
  }
}

// A block takes every gridDim.x-th tile.
template <Product kProduct, int kTokens, int kPanel>
__global__ void __launch_bounds__(kThreads, 1)
    SmallProduct(const __grid_constant__ SmallGemmParams params, const Tiles tiles) {
  using S = Shared<kProduct, kTokens, kPanel>;
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  S& shared = *reinterpret_cast<S*>(dynamic_shared);
  constexpr int kColumns = kProduct == Product::kBf16 ? kChunkBytes / 2 : kChunkBytes;
  const int count = static_cast<int>(params.k) / kColumns;
  if (threadIdx.x == 0) shared.ring.Init(32, kGroup / 32);
  __syncthreads();
  if (threadIdx.x >= kGroup) {
    Fetch(params, tiles, count, shared);
    return;
  }
  AwaitPredecessors();
  Chunks<S> chunks{shared};
  for (int index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    float acc[kTokens / 2];
    MultiplyTile(chunks, count, acc);
    StoreTile<kTokens, kPanel>(params, tiles.At<kTokens, kPanel>(index), acc);
  }
}

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <Product kProduct, int kTokens, int kPanel>
void Launch(const SmallGemmParams& params, CUstream_st* stream) {
  using S = Shared<kProduct, kTokens, kPanel>;
  const auto kernel = SmallProduct<kProduct, kTokens, kPanel>;
  CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(S)),
            "cudaFuncSetAttribute");
  Tiles tiles;
  tiles.panels = static_cast<int>(DivideUp(params.n, kPanel));
  tiles.token_tiles = static_cast<int>(DivideUp(params.rows, kTokens));
  tiles.count = tiles.panels * tiles.token_tiles * params.groups;
  const int grid = std::min(tiles.count, CurrentDevice().multiprocessors);
  LaunchClosely(kernel, {.grid = dim3(grid), .threads = kThreads, .shared_bytes = sizeof(S)},
                stream, params, tiles);
  CheckLaunch("SmallProduct");
}

// The panel with which a multiprocessor reads least, of weights and of tokens again and again.
template <Product kProduct, int kTokens>
void LaunchPanels(const SmallGemmParams& params, CUstream_st* stream) {
  const auto cost = [&](int panel) {
    const int64_t tiles =
        DivideUp(params.n, panel) * DivideUp(params.rows, kTokens) * params.groups;
    constexpr int kTokenShare = kProduct == Product::kWidened ? 2 * kTokens : kTokens;
    return DivideUp(tiles, CurrentDevice().multiprocessors) * (panel + kTokenShare);
  };
  constexpr int kNarrowest = SmallGemmTile::kNarrowest;
  constexpr int kWidest = SmallGemmTile::kWidest;
  if (cost(kNarrowest) < std::min(cost(32), cost(kWidest))) {
    return Launch<kProduct, kTokens, kNarrowest>(params, stream);
  }
  if (cost(32) < cost(kWidest)) return Launch<kProduct, kTokens, 32>(params, stream);
  Launch<kProduct, kTokens, kWidest>(params, stream);
}

template <Product kProduct>
void LaunchFor(const SmallGemmParams& params, CUstream_st* stream) {
  if (params.rows <= 8) return LaunchPanels<kProduct, 8>(params, stream);
  if (params.rows <= 32) return LaunchPanels<kProduct, 32>(params, stream);
  LaunchPanels<kProduct, SmallGemmTile::kTokens>(params, stream);
}

}  // namespace

void SmallGemmSm90a(const SmallGemmParams& params, CUstream_st* stream) {
  using Format = SmallGemmParams::Format;
  if (params.w_format != Format::kFp8) return LaunchFor<Product::kBf16>(params, stream);
  if (params.x_format != Format::kFp8) return LaunchFor<Product::kWidened>(params, stream);
  LaunchFor<Product::kFp8>(params, stream);
}

}  // namespace baton::kernels::cuda
