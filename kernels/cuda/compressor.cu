#include <algorithm>
#include <bit>

#include <cooperative_groups.h>

#include "common/base/check.h"
#include "kernels/cuda/compressor.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/device/index_format.cuh"
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

// An entry that a row of the batch closes: where its candidates lie and where it goes. Candidates
// up to `newest` rows back are rows of the batch, before that rows of the ring.
struct ClosingEntry {
  int row;
  int newest;
  bool has_overlap;  // tokens before its own exist
  int ring_row;      // of the closing row
  const float* ring;
  EntryPlace place;
  int entry;
};
struct ClosingEntries {
  int count;
  ClosingEntry entries[kMaxBlockRows];
};

__device__ ClosingEntry DescribeEntry(const CompressParams& params, int row) {
  const BatchView& batch = params.batch;
  const int sequence = batch.sequence[row];
  const int position = batch.position[row];
  const int entry = position / params.ratio;
  const int32_t* pages = batch.page_table + int64_t{sequence} * batch.max_pages;
  return {.row = row,
          .newest = position - batch.start[sequence],
          .has_overlap = entry > 0,
          .ring_row = position % params.ring.rows,
          .ring = params.ring.data + batch.slot[sequence] * params.ring.slot_stride,
          .place = LocateEntry(params.pool, PageDivider(params.pool), pages, entry),
          .entry = entry};
}

// c, g and what g still lacks, of four channels of some tokens. All loads come before the first use
// of one, so that they travel together.
template <int kCount>
struct Candidates {
  float4 c[kCount];
  float4 g[kCount];
  float4 bias[kCount];

  // Candidate `i` is the token `back` positions before the closing one.
  template <int kRatio>
  __device__ void Load(const CompressParams& params, const ClosingEntry& entry, int i, int back,
                       int channel) {
    const int gates = params.ring.width / 2;
    const bool in_batch = back <= entry.newest;
    int ring_row = entry.ring_row - back;
    if (ring_row < 0) ring_row += params.ring.rows;
    const float* source = in_batch ? params.chunk.Row(entry.row - back)
                                   : entry.ring + int64_t{ring_row} * params.ring.width;
    c[i] = LoadFloat4(source + channel);
    g[i] = LoadFloat4(source + gates + channel);
    bias[i] = {0, 0, 0, 0};  // the ring's gates have theirs
    const int phase = kRatio - 1 - back % kRatio;
    if (in_batch) bias[i] = LoadFloat4(params.bias + phase * gates + channel);
  }
  __device__ void SetMissing(int i) {
    c[i] = bias[i] = {0, 0, 0, 0};
    g[i] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  }
  __device__ void AddBias() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) g[i] = Add(g[i], bias[i]);
  }
};

__device__ inline float Lane(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline void StorePooled(const float (&pooled)[4], BFloat16* target) {
  *reinterpret_cast<uint2*>(target) = {PackBf16(pooled[0], pooled[1]),
                                       PackBf16(pooled[2], pooled[3])};
}

// Collects the entries that rows [first, first + block_rows) close, in order, and, where asked for,
// writes those rows to the ring: this thread is number `thread` of the `threads` that share them.
__device__ void VisitRows(const CompressParams& params, const Launch& launch, int first, int thread,
                          int threads, ClosingEntries& closing) {
  const BatchView& batch = params.batch;
  const int end = min(first + launch.block_rows, batch.rows);
  if (threadIdx.x < 32) {
    int count = 0;
    for (int begin = first; begin < end; begin += 32) {
      const int row = begin + static_cast<int>(threadIdx.x);
      const bool closes =
          row < end && batch.sequence[row] >= 0 && (batch.position[row] + 1) % params.ratio == 0;
      const uint32_t closers = __ballot_sync(kFullWarp, closes);
      const int before = __popc(closers & ((1u << threadIdx.x) - 1));
      if (closes) closing.entries[count + before] = DescribeEntry(params, row);
      count += __popc(closers);
    }
    if (threadIdx.x == 0) closing.count = count;
  }
  if (launch.writes_ring) {
    for (int row = first; row < end; ++row) {
      const int sequence = batch.sequence[row];
      if (sequence < 0) continue;
      const int position = batch.position[row];
      const RingSource<float> source = {
          .row = params.chunk.Row(row),
          .bias = BiasRow(params.bias, params.ratio, params.ring.width, position)};
      CopyToRing(source, params.ring.width, thread, threads,
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

// One warp stores `count` entries, pooled in that order.
template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__device__ void FinishPooled(const CompressParams& params, const ClosingEntry* entries, int count,
                             const EntryOperands<kHeadDim>& operands,
                             PooledRows<kHeadDim>& pooled) {
  using Tile = EntryTile<kHeadDim>;
  const int row = Tile::Row();
  const bool used = row < count;
  Tile tile;
  tile.Load(used ? pooled.Row(row) : nullptr);
  NormalizeRows(tile, operands, params.eps);
  RotateRows(tile, operands, RotationOf(operands, params.rope, used ? entries[row].entry : 0));
  StoreRows<kFormat, kNumerics>(tile, operands, params.pool,
                                used ? entries[row].place : EntryPlace{});
}

// Four channels of an overlapping entry: the a parts of the four tokens before its own, then the b
// parts of its own.
template <int kHeadDim>
__device__ void PoolOverlapping(const CompressParams& params, const ClosingEntry& entry,
                                int channel, BFloat16* target) {
  constexpr int kCandidates = 2 * kCsaRatio;
  Candidates<kCandidates> candidates;
#pragma unroll
  for (int i = 0; i < kCandidates; ++i) {
    const bool overlap = i < kCsaRatio;
    if (overlap && !entry.has_overlap) {
      candidates.SetMissing(i);
    } else {
      candidates.template Load<kCsaRatio>(params, entry, i, kCandidates - 1 - i,
                                          channel + (overlap ? 0 : kHeadDim));
    }
  }
  candidates.AddBias();
  const auto& [c, g, bias] = candidates;
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

constexpr int kCsaThreads = 128;
constexpr int kCsaBlocks = 3;  // of a multiprocessor

template <int kHeadDim, EntryFormat kFormat, Numerics kNumerics>
__global__ void __launch_bounds__(kCsaThreads, kCsaBlocks)
    CompressCsaKernel(const CompressParams params, const Launch launch) {
  constexpr int kQuads = kHeadDim / 4;
  constexpr int kRows = PooledRows<kHeadDim>::kRows;
  __shared__ ClosingEntries closing;
  __shared__ PooledRows<kHeadDim> pooled;
  __shared__ EntryOperands<kHeadDim> operands;
  if (threadIdx.x < 32) operands.template Fill<kFormat>(params.weight, params.rope.frequencies);
  AwaitPredecessors();
  VisitRows(params, launch, blockIdx.x * launch.block_rows, threadIdx.x, kCsaThreads, closing);
  for (int first = 0; first < closing.count; first += kRows) {
    const int count = min(kRows, closing.count - first);
    for (int i = threadIdx.x / kQuads; i < count; i += kCsaThreads / kQuads) {
      const int channel = threadIdx.x % kQuads * 4;
      PoolOverlapping<kHeadDim>(params, closing.entries[first + i], channel,
                                pooled.Row(i) + channel);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      FinishPooled<kHeadDim, kFormat, kNumerics>(params, closing.entries + first, count, operands,
                                                 pooled);
    }
    __syncthreads();
  }
}

// 128:1. A cluster of blocks shares an entry: each pools a quarter of the channels, a warp of it a
// part of the tokens, and the first block stores the row.
constexpr int kHcaHeadDim = 512;
constexpr int kHcaBlocks = 4;  // of a cluster
constexpr int kHcaChannels = kHcaHeadDim / kHcaBlocks;
constexpr int kHcaWarps = 8;
static_assert(kHcaChannels / 4 == 32, "a lane takes four channels");

// Softmax over some of an entry's tokens, four channels: sums relative to the largest gate.
struct PartialPool {
  float largest[4];
  float total[4];
  float sum[4];
};

__device__ PartialPool PoolTokens(const CompressParams& params, const ClosingEntry& entry, int warp,
                                  int channel) {
  constexpr int kTokens = kHcaRatio / kHcaWarps;
  constexpr int kAtOnce = 4;
  PartialPool pool = {.largest = {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                      .total = {0, 0, 0, 0},
                      .sum = {0, 0, 0, 0}};
#pragma unroll 2
  for (int begin = 0; begin < kTokens; begin += kAtOnce) {
    Candidates<kAtOnce> candidates;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      candidates.template Load<kHcaRatio>(params, entry, i,
                                          kHcaRatio - 1 - (warp * kTokens + begin + i), channel);
    }
    candidates.AddBias();
    const auto& [c, g, bias] = candidates;
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

// parts[warp][lane] of the calling lane's channels.
__device__ void MergePools(const PartialPool (*parts)[32], BFloat16* target) {
  const int lane = threadIdx.x % 32;
  float pooled[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float largest = parts[0][lane].largest[k];
    for (int i = 1; i < kHcaWarps; ++i) largest = fmaxf(largest, parts[i][lane].largest[k]);
    float total = 0;
    float sum = 0;
    for (int i = 0; i < kHcaWarps; ++i) {
      const PartialPool& part = parts[i][lane];
      const float kept = expf(part.largest[k] - largest);
      total = __fmaf_rn(kept, part.total[k], total);
      sum = __fmaf_rn(kept, part.sum[k], sum);
    }
    pooled[k] = __fdiv_rn(sum, total);
  }
  StorePooled(pooled, target);
}

template <EntryFormat kFormat, Numerics kNumerics>
__global__ void __cluster_dims__(kHcaBlocks) __launch_bounds__(32 * kHcaWarps, 2)
    CompressHcaKernel(const CompressParams params, const Launch launch) {
  using Pooled = PooledRows<kHcaHeadDim>;
  __shared__ ClosingEntries closing;
  __shared__ PartialPool parts[kHcaWarps][32];
  __shared__ Pooled pooled;
  __shared__ EntryOperands<kHcaHeadDim> operands;
  if (threadIdx.x < 32) operands.template Fill<kFormat>(params.weight, params.rope.frequencies);
  AwaitPredecessors();
  const auto cluster = cooperative_groups::this_cluster();
  const int block = static_cast<int>(cluster.block_rank());
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int channel = block * kHcaChannels + threadIdx.x % 32 * 4;
  Pooled& gathered = *cluster.map_shared_rank(&pooled, 0);
  cluster.barrier_arrive();  // the first block must run before others write to it
  VisitRows(params, launch, blockIdx.x / kHcaBlocks * launch.block_rows,
            block * blockDim.x + threadIdx.x, kHcaBlocks * blockDim.x, closing);
  cluster.barrier_wait();
  for (int first = 0; first < closing.count; first += Pooled::kRows) {
    const int count = min(Pooled::kRows, closing.count - first);
    for (int i = 0; i < count; ++i) {
      parts[warp][threadIdx.x % 32] = PoolTokens(params, closing.entries[first + i], warp, channel);
      __syncthreads();
      if (warp == 0) MergePools(parts, gathered.Row(i) + channel);
      __syncthreads();
    }
    cluster.sync();
    if (block == 0 && warp == 0) {
      FinishPooled<kHcaHeadDim, kFormat, kNumerics>(params, closing.entries + first, count,
                                                    operands, pooled);
    }
    cluster.sync();
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
  BATON_CHECK(params.rope.step == params.ratio)
      << "rotations of " << params.rope.step << " tokens an entry, not " << params.ratio;
  BATON_CHECK(params.chunk.cols == width && params.chunk.stride % 4 == 0 &&
              params.ring.width == width && params.ring.rows >= reach)
      << "row " << params.chunk.cols << ", ring " << params.ring.rows << " x " << params.ring.width;
  if (batch.rows == 0) return;
  const bool writes_ring = batch.max_rows <= params.ring.rows - (reach - 1);
  // As many blocks as run at once, in shares that fit the entries of a long chunk.
  const int wanted = overlapping ? kCsaBlocks * CurrentDevice().multiprocessors
                                 : CurrentDevice().multiprocessors / 2;
  const auto share = static_cast<unsigned>((batch.rows + wanted - 1) / wanted);
  const Launch launch = {.block_rows = std::min<int>(std::bit_ceil(share), kMaxBlockRows),
                         .writes_ring = writes_ring};
  const int blocks = (batch.rows + launch.block_rows - 1) / launch.block_rows;
  DispatchEntryFormat(params.pool, params.numerics, [&](auto dim, auto format, auto numerics) {
    if (overlapping) {
      LaunchClosely(CompressCsaKernel<dim.value, format.value, numerics.value>,
                    {dim3(blocks), kCsaThreads}, stream, params, launch);
    } else if constexpr (dim.value == kHcaHeadDim) {
      LaunchClosely(CompressHcaKernel<format.value, numerics.value>,
                    {dim3(blocks * kHcaBlocks), 32 * kHcaWarps}, stream, params, launch);
    }
  });
  CheckLaunch("Compress");
  if (!writes_ring) {
    WriteRings(batch, params.chunk, params.ring, params.bias, params.ratio, stream);
  }
}

}  // namespace baton::kernels::cuda
