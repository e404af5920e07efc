#pragma once

#include <cstdint>

#include <cuda_pipeline_primitives.h>

#include "common/base/bf16.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/hyper_projection.h"
#include "kernels/runtime/error.h"

// The loop of both variants: channels pass through shared memory, 64 of 128 rows a stage, and a
// Projection adds them up. Sums are formed over a stage, then over a segment, then over a group,
// whatever the grid, so that a row's bits do not depend on how many there are.

namespace baton::kernels::cuda {

inline constexpr int kHcThreads = 128;
inline constexpr int kHcBlockRows = 128;
inline constexpr int kHcRowVectors = kHcStep / 8;

template <int kTiles>
struct HcStage {
  static constexpr int kFnVectors = kHcStep / 8 * 8 * kTiles * kFnParts;
  alignas(1024) Vector16 rows[kHcBlockRows * kHcRowVectors];
  alignas(1024) Vector16 fn[kFnVectors];
};

// Starts loading channels [64 step, 64 step + 64); rows past the end become zeros.
template <typename Projection, typename Stage>
__device__ void FetchHcStage(MatrixView<const BFloat16> streams, int64_t first_row,
                             const Vector16* fn, int step, Stage& stage) {
#pragma unroll
  for (int i = 0; i < kHcBlockRows * kHcRowVectors / kHcThreads; ++i) {
    const int index = i * kHcThreads + static_cast<int>(threadIdx.x);
    const int row = index / kHcRowVectors;
    const int vector = index % kHcRowVectors;
    const int64_t source = first_row + row;
    const bool exists = source < streams.rows;
    __pipeline_memcpy_async(&stage.rows[Projection::RowVector(row, vector)],
                            streams.Row(exists ? source : 0) + step * kHcStep + vector * 8, 16,
                            exists ? 0 : 16);
  }
  for (int i = threadIdx.x; i < Stage::kFnVectors; i += kHcThreads) {
    __pipeline_memcpy_async(&stage.fn[i], fn + int64_t{step} * Stage::kFnVectors + i, 16);
  }
}

// Block (x, y): 128 rows, the y-th of gridDim.y equal runs of channels, each whole groups or, with
// kBySegment, one segment.
template <typename Projection, bool kBySegment>
__global__ void __launch_bounds__(kHcThreads, 2) HcProjectKernel(const HcProjectParams params) {
  AwaitPredecessors();
  extern __shared__ __align__(1024) unsigned char shared[];
  auto* stages = reinterpret_cast<typename Projection::Stage*>(shared);
  const MatrixView<const BFloat16>& streams = params.streams;
  const int64_t first_row = int64_t{blockIdx.x} * kHcBlockRows;
  const int all_steps = static_cast<int>(streams.cols) / kHcStep;
  const int segment_steps = all_steps / params.segments;
  const int group_steps = all_steps / kGroups;
  const int steps = all_steps / static_cast<int>(gridDim.y);
  const int first_step = static_cast<int>(blockIdx.y) * steps;
  const auto fetch = [&](int step) {
    if (step < steps) {
      FetchHcStage<Projection>(streams, first_row, static_cast<const Vector16*>(params.fn),
                               first_step + step, stages[step % Projection::kStages]);
    }
    __pipeline_commit();
  };
  for (int step = 0; step < Projection::kStages - 1; ++step) fetch(step);
  typename Projection::Sums segment;
  typename Projection::Sums group;
  for (int step = 0; step < steps; ++step) {
    __pipeline_wait_prior(Projection::kStages - 2);
    Projection::BeforeBarrier();
    __syncthreads();
    fetch(step + Projection::kStages - 1);
    Projection::Accumulate(stages[step % Projection::kStages], segment);
    const int done = first_step + step + 1;
    if (done % segment_steps != 0) continue;
    if constexpr (kBySegment) {
      Projection::Store(segment, first_row, streams.rows, done / segment_steps - 1, params.partial);
    } else {
      group.Add(segment);
      segment = {};
      if (done % group_steps != 0) continue;
      Projection::Store(group, first_row, streams.rows, done / group_steps - 1, params.partial);
      group = {};
    }
  }
}

template <typename Projection>
void LaunchHcProject(const HcProjectParams& params, CUstream_st* stream) {
  constexpr int kSharedBytes = Projection::kStages * sizeof(typename Projection::Stage);
  const auto kernel =
      params.by_segment ? HcProjectKernel<Projection, true> : HcProjectKernel<Projection, false>;
  CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
            "cudaFuncSetAttribute");
  const int64_t blocks = (params.streams.rows + kHcBlockRows - 1) / kHcBlockRows;
  const dim3 grid(static_cast<unsigned>(blocks), params.runs);
  LaunchClosely(kernel, {grid, kHcThreads, kSharedBytes}, stream, params);
  CheckLaunch("HcProject");
}

}  // namespace baton::kernels::cuda
