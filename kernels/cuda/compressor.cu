#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/compressor.h"
#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/device/ring.cuh"
#include "kernels/cuda/entry_dispatch.h"
#include "kernels/cuda/window_kv.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kMaxBlockRows = 128;

struct Launch {
  int block_rows = 0;        // batch rows a block looks at
  bool writes_ring = false;  // in the same launch
};

// Rows of a block that close an entry, in no particular order.
struct ClosingRows {
  int count = 0;
  int rows[kMaxBlockRows];
};

// Where the candidates of one entry lie: up to `newest` rows back they are rows of the batch,
// before that rows of the ring.
struct CandidateRows {
  const CompressParams& params;
  int row;       // the closing row
  int position;  // of the closing row
  int newest;    // rows of the sequence before it in this batch
  int slot;

  // c and biased g of four channels of the token `back` positions before the closing one.
  __device__ void Load(int back, int channel, float4& c, float4& g) const {
    const int gates = params.ring.width / 2;
    const int token = position - back;
    const float* source =
        back <= newest ? params.chunk.Row(row - back) : RingRow(params.ring, slot, token);
    c = LoadFloat4(source + channel);
    g = LoadFloat4(source + gates + channel);
    if (back <= newest) {
      g = Add(g,
              LoadFloat4(BiasRow(params.bias, params.ratio, params.ring.width, token) + channel));
    }
  }
};

__device__ CandidateRows CandidatesOf(const CompressParams& params, int row) {
  const BatchView& batch = params.batch;
  const int sequence = batch.sequence[row];
  const int position = batch.position[row];
  return {params, row, position, position - batch.start[sequence], batch.slot[sequence]};
}

__device__ inline float Lane(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline void StorePooled(const float (&pooled)[4], BFloat16* target) {
  *reinterpret_cast<uint2*>(target) = {PackBf16(pooled[0], pooled[1]),
                                       PackBf16(pooled[2], pooled[3])};
}

// Collects the block's closing rows and, where asked for, writes its rows to the ring.
__device__ void VisitRows(const CompressParams& params, const Launch& launch,
                          ClosingRows& closing) {
  const BatchView& batch = params.batch;
  const int first = blockIdx.x * launch.block_rows;
  const int end = min(first + launch.block_rows, batch.rows);
  if (threadIdx.x == 0) closing.count = 0;
  __syncthreads();
  const int row = first + static_cast<int>(threadIdx.x);
  if (row < end && batch.sequence[row] >= 0 && (batch.position[row] + 1) % params.ratio == 0) {
    closing.rows[atomicAdd(&closing.count, 1)] = row;
  }
  if (launch.writes_ring) {
    for (int r = first; r < end; ++r) {
      const int sequence = batch.sequence[r];
      if (sequence < 0) continue;
      const int position = batch.position[r];
      const RingSource<float> source = {
          .row = params.chunk.Row(r),
          .bias = BiasRow(params.bias, params.ratio, params.ring.width, position)};
      CopyToRing(source, params.ring.width, threadIdx.x, blockDim.x,
                 RingRow(params.ring, batch.slot[sequence], position));
    }
  }
  __syncthreads();
}

// Pooled rows on their way to FinishEntries; 16 bytes between rows keep its accesses off one bank.
template <int kHeadDim>
struct PooledRows {
  static constexpr int kRows = EntryTile<kHeadDim>::kRows;
  static constexpr int kStride = kHeadDim + 8;
  alignas(16) BFloat16 values[kRows * kStride];

  __device__ BFloat16* Row(int row) { return values + row * kStride; }
};

// One warp stores entries closing.rows[first, first + kRows), pooled in that order.
template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__device__ void FinishPooled(const CompressParams& params, const ClosingRows& closing, int first,
                             PooledRows<kHeadDim>& pooled) {
  using Tile = EntryTile<kHeadDim>;
  Tile tile;
  EntryPlace place[Tile::kRowsPerLane];
  const float* rope[Tile::kRowsPerLane];
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerLane; ++i) {
    const int index = first + Tile::Row(i);
    const bool used = index < closing.count;
    tile.Load(i, used ? pooled.Row(Tile::Row(i)) : nullptr);
    if (!used) continue;
    const BatchView& batch = params.batch;
    const int row = closing.rows[index];
    const int entry = batch.position[row] / params.ratio;
    const int32_t* pages = batch.page_table + int64_t{batch.sequence[row]} * batch.max_pages;
    place[i] = LocateEntry(params.pool, pages, entry);
    rope[i] = params.rope + int64_t{entry} * kRopeDim;
  }
  FinishEntries<kHeadDim, kFormat, kNumerics>(tile, params.weight, params.eps, rope, place,
                                              params.pool.entries_per_page);
}

// Four channels of an overlapping entry: the a parts of the four tokens before its own, then the b
// parts of its own.
template <int kHeadDim>
__device__ void PoolOverlapping(const CandidateRows& candidates, int channel, BFloat16* target) {
  constexpr int kCandidates = 2 * kCsaRatio;
  float4 c[kCandidates];
  float4 g[kCandidates];
#pragma unroll
  for (int i = 0; i < kCandidates; ++i) {
    const int back = kCandidates - 1 - i;
    c[i] = {0, 0, 0, 0};
    g[i] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    if (candidates.position < back) continue;  // before the sequence's first token
    candidates.Load(back, channel + (i < kCsaRatio ? 0 : kHeadDim), c[i], g[i]);
  }
  float pooled[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float largest = Lane(g[0], k);
#pragma unroll
    for (int i = 1; i < kCandidates; ++i) largest = fmaxf(largest, Lane(g[i], k));
    float total = 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kCandidates; ++i) {
      const float weight = expf(Lane(g[i], k) - largest);
      total += weight;
      sum = __fmaf_rn(weight, Lane(c[i], k), sum);
    }
    pooled[k] = __fdiv_rn(sum, total);
  }
  StorePooled(pooled, target);
}

constexpr int kCsaThreads = 256;

template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__global__ void __launch_bounds__(kCsaThreads, 2)
    CompressCsaKernel(const CompressParams params, const Launch launch) {
  constexpr int kQuads = kHeadDim / 4;
  constexpr int kRows = PooledRows<kHeadDim>::kRows;
  __shared__ ClosingRows closing;
  __shared__ PooledRows<kHeadDim> pooled;
  VisitRows(params, launch, closing);
  for (int first = 0; first < closing.count; first += kRows) {
    const int count = min(kRows, closing.count - first);
    for (int i = threadIdx.x / kQuads; i < count; i += kCsaThreads / kQuads) {
      const int channel = threadIdx.x % kQuads * 4;
      PoolOverlapping<kHeadDim>(CandidatesOf(params, closing.rows[first + i]), channel,
                                pooled.Row(i) + channel);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      FinishPooled<kHeadDim, kFormat, kNumerics>(params, closing, first, pooled);
    }
    __syncthreads();
  }
}

// Softmax over some of an entry's tokens, four channels: sums relative to the largest gate.
struct PartialPool {
  float largest[4];
  float total[4];
  float sum[4];
};

constexpr int kHcaGroups = 4;  // warps that share an entry's channels split its tokens
constexpr int kHcaHeadDim = 512;
constexpr int kHcaThreads = kHcaGroups * kHcaHeadDim / 4;

__device__ PartialPool PoolTokens(const CandidateRows& candidates, int group, int channel) {
  constexpr int kTokens = kHcaRatio / kHcaGroups;
  constexpr int kAtOnce = 8;
  PartialPool pool = {.largest = {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                      .total = {0, 0, 0, 0},
                      .sum = {0, 0, 0, 0}};
  for (int begin = 0; begin < kTokens; begin += kAtOnce) {
    float4 c[kAtOnce];
    float4 g[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      candidates.Load(kHcaRatio - 1 - (group * kTokens + begin + i), channel, c[i], g[i]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float largest = pool.largest[k];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) largest = fmaxf(largest, Lane(g[i], k));
      const float kept = expf(pool.largest[k] - largest);
      pool.largest[k] = largest;
      pool.total[k] *= kept;
      pool.sum[k] *= kept;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float weight = expf(Lane(g[i], k) - largest);
        pool.total[k] += weight;
        pool.sum[k] = __fmaf_rn(weight, Lane(c[i], k), pool.sum[k]);
      }
    }
  }
  return pool;
}

__device__ void MergePools(const PartialPool* parts, BFloat16* target) {
  float pooled[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float largest = parts[0].largest[k];
    for (int i = 1; i < kHcaGroups; ++i) {
      largest = fmaxf(largest, parts[i * (kHcaHeadDim / 4)].largest[k]);
    }
    float total = 0;
    float sum = 0;
    for (int i = 0; i < kHcaGroups; ++i) {
      const PartialPool& part = parts[i * (kHcaHeadDim / 4)];
      const float kept = expf(part.largest[k] - largest);
      total = __fmaf_rn(kept, part.total[k], total);
      sum = __fmaf_rn(kept, part.sum[k], sum);
    }
    pooled[k] = __fdiv_rn(sum, total);
  }
  StorePooled(pooled, target);
}

template <EntryFormat kFormat, Numerics kNumerics>
__global__ void __launch_bounds__(kHcaThreads)
    CompressHcaKernel(const CompressParams params, const Launch launch) {
  constexpr int kQuads = kHcaHeadDim / 4;
  __shared__ ClosingRows closing;
  __shared__ PartialPool parts[kHcaThreads];
  __shared__ PooledRows<kHcaHeadDim> pooled;
  const int channel = threadIdx.x % kQuads * 4;
  VisitRows(params, launch, closing);
  for (int first = 0; first < closing.count; first += PooledRows<kHcaHeadDim>::kRows) {
    const int count = min(PooledRows<kHcaHeadDim>::kRows, closing.count - first);
    for (int i = 0; i < count; ++i) {
      parts[threadIdx.x] =
          PoolTokens(CandidatesOf(params, closing.rows[first + i]), threadIdx.x / kQuads, channel);
      __syncthreads();
      if (threadIdx.x < kQuads) MergePools(parts + threadIdx.x, pooled.Row(i) + channel);
      __syncthreads();
    }
    if (threadIdx.x < 32) {
      FinishPooled<kHcaHeadDim, kFormat, kNumerics>(params, closing, first, pooled);
    }
    __syncthreads();
  }
}

}  // namespace

void Compress(const CompressParams& params, CUstream_st* stream) {
  const BatchView& batch = params.batch;
  const int head_dim = params.pool.head_dim;
  const bool overlapping = params.ratio == kCsaRatio;
  BATON_CHECK(overlapping || (params.ratio == kHcaRatio && head_dim == kHcaHeadDim))
      << "no kernel for ratio " << params.ratio << " with head_dim " << head_dim;
  const int width = head_dim * (overlapping ? 4 : 2);
  const int reach = overlapping ? 2 * kCsaRatio : kHcaRatio;  // rows an entry is pooled from
  BATON_CHECK(params.chunk.cols == width && params.chunk.stride % 4 == 0 &&
              params.ring.width == width && params.ring.rows >= reach)
      << "row " << params.chunk.cols << ", ring " << params.ring.rows << " x " << params.ring.width;
  if (batch.rows == 0) return;
  const bool writes_ring = batch.max_rows <= params.ring.rows - (reach - 1);
  DispatchEntryFormat(params.pool, params.numerics, [&](auto dim, auto format, auto numerics) {
    constexpr int kRows = EntryTile<dim.value>::kRows;
    // Few rows: as many blocks as possible. Many: as many rows as close a tile of one sequence.
    const bool many = batch.rows >= 16 * CurrentDevice().multiprocessors;
    if (overlapping) {
      const Launch launch = {.block_rows = many ? kCsaRatio * kRows : std::max(1, kRows / 4),
                             .writes_ring = writes_ring};
      const int blocks = (batch.rows + launch.block_rows - 1) / launch.block_rows;
      CompressCsaKernel<dim.value, format.value, numerics.value>
          <<<blocks, kCsaThreads, 0, stream>>>(params, launch);
    } else if constexpr (dim.value == kHcaHeadDim) {
      const Launch launch = {.block_rows = many ? 32 : 1, .writes_ring = writes_ring};
      const int blocks = (batch.rows + launch.block_rows - 1) / launch.block_rows;
      CompressHcaKernel<format.value, numerics.value>
          <<<blocks, kHcaThreads, 0, stream>>>(params, launch);
    }
  });
  CheckLaunch("Compress");
  if (!writes_ring) {
    WriteRings(batch, params.chunk, params.ring, params.bias, params.ratio, stream);
  }
}

}  // namespace baton::kernels::cuda
