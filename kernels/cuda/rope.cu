#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/entry_tile.cuh"
#include "kernels/cuda/rope.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 128;

unsigned Blocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

// A thread a pair. The angle is rounded to FP32 first, then taken as exact: it reaches 1e6.
__global__ void FillRopeKernel(const RopeFrequencies frequencies, const int32_t* positions,
                               int step, int64_t rows, float* rope) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = index / kRopePairs;
  const int pair = static_cast<int>(index % kRopePairs);
  if (row >= rows) return;
  const int64_t position = positions != nullptr ? positions[row] : row * step;
  const float angle = __fmul_rn(static_cast<float>(position), frequencies[pair]);
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  rope[row * kRopeDim + pair] = static_cast<float>(cosine);
  rope[row * kRopeDim + kRopePairs + pair] = static_cast<float>(sine);
}

void LaunchFillRope(const RopeFrequencies& frequencies, const int32_t* positions, int step,
                    int64_t rows, float* rope, CUstream_st* stream) {
  if (rows == 0) return;
  FillRopeKernel<<<Blocks(rows * kRopePairs, kThreads), kThreads, 0, stream>>>(
      frequencies, positions, step, rows, rope);
  CheckLaunch("FillRope");
}

__global__ void __launch_bounds__(kThreads) QueryNormRopeKernel(const QueryNormRopeParams params) {
  AwaitPredecessors();
  using Tile = EntryTile<512>;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32 * Tile::kRows;
  const int64_t index = first + Tile::Row();
  const int64_t row = index / params.heads;
  BFloat16* head = nullptr;
  if (row < params.q.rows) head = params.q.Row(row) + (index - row * params.heads) * 512;
  Tile tile;
  tile.Load(head);
  tile.Normalize<false>(tile.MeanSquare(), nullptr, params.eps);
  if (head == nullptr) return;
  tile.Rotate(Tile::LoadRotation(params.rope + row * kRopeDim));
  tile.Store(head);
}

// Eight lanes a head.
__global__ void InverseRopeKernel(MatrixView<BFloat16> o, int heads, int head_dim,
                                  const float* rope) {
  AwaitPredecessors();
  constexpr int kLanes = kRopeDim / 8;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t index = thread / kLanes;
  const int64_t row = index / heads;
  if (row >= o.rows) return;
  const int lane = static_cast<int>(thread % kLanes);
  BFloat16* channels = o.Row(row) + (index - row * heads + 1) * head_dim - kRopeDim + 8 * lane;
  const float* angles = rope + row * kRopeDim + 4 * lane;
  const float4 cosines = *reinterpret_cast<const float4*>(angles);
  const float4 sines = *reinterpret_cast<const float4*>(angles + kRopePairs);
  const Vector16 value = Load16(channels);
  uint32_t words[4] = {value.x, value.y, value.z, value.w};
  EntryTile<512>::RotateChunk(words, cosines, {-sines.x, -sines.y, -sines.z, -sines.w});
  Store16(channels, {words[0], words[1], words[2], words[3]});
}

}  // namespace

void FillRope(const RopeFrequencies& frequencies, const int32_t* positions, int64_t rows,
              float* rope, CUstream_st* stream) {
  BATON_CHECK(rows == 0 || positions != nullptr);
  LaunchFillRope(frequencies, positions, 0, rows, rope, stream);
}

void FillRopeTable(const RopeFrequencies& frequencies, int step, int64_t rows, float* rope,
                   CUstream_st* stream) {
  LaunchFillRope(frequencies, nullptr, step, rows, rope, stream);
}

void QueryNormRope(const QueryNormRopeParams& params, CUstream_st* stream) {
  BATON_CHECK(params.heads > 0 && params.q.cols == int64_t{512} * params.heads &&
              params.q.stride % 8 == 0)
      << "no kernel for width " << params.q.cols << " of " << params.heads << " heads";
  const int64_t heads = params.q.rows * params.heads;
  if (heads == 0) return;
  const unsigned blocks = Blocks(heads, kThreads / 32 * EntryTile<512>::kRows);
  LaunchClosely(QueryNormRopeKernel, {dim3(blocks), kThreads}, stream, params);
  CheckLaunch("QueryNormRope");
}

void InverseRope(MatrixView<BFloat16> o, int heads, const float* rope, CUstream_st* stream) {
  BATON_CHECK(heads > 0 && o.cols % (8 * heads) == 0 && o.cols / heads >= kRopeDim &&
              o.stride % 8 == 0)
      << "width " << o.cols << ", heads " << heads;
  const int64_t threads = o.rows * heads * (kRopeDim / 8);
  if (threads == 0) return;
  LaunchClosely(InverseRopeKernel, {dim3(Blocks(threads, kThreads)), kThreads}, stream, o, heads,
                static_cast<int>(o.cols / heads), rope);
  CheckLaunch("InverseRope");
}

}  // namespace baton::kernels::cuda
