#pragma once

#include <cstdint>

#include <cuda_pipeline_primitives.h>

#include "common/base/bf16.h"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/matrix.h"

// (fn u) and sum u^2 of rows of streams, as kSegments partial sums over consecutive channels. A
// block sums one segment or, when there are rows enough to fill the device, several.

namespace baton::kernels::cuda {

inline constexpr int kFnParts = 3;  // BF16 numbers that make up an FP32 one
inline constexpr int kGroups = 16;
inline constexpr int kGroupSegments = 4;  // 1 in streams too narrow for that

template <int kTiles>  // of 8 mixes
struct HcProjection {
  static constexpr int kThreads = 128;
  static constexpr int kBlockRows = 128;
  static constexpr int kStep = 64;  // channels a stage
  static constexpr int kStages = 4;
  static constexpr int kColumns = 8 * kTiles + 1;  // mixes, then the sum of squares
  static constexpr int kRowVectors = kStep / 8;
  static constexpr int kFnVectors = kStep / 32 * kTiles * kFnParts * 32;

  struct Stage {
    Vector16 rows[kBlockRows * kRowVectors];
    Vector16 fn[kFnVectors];
  };
  static constexpr int kSharedBytes = kStages * sizeof(Stage);

  // Where 16 bytes of a row lie: rows with an odd number swap halves, or the eight lanes that a
  // load serves at once would hit the same banks twice.
  __device__ static int RowVector(int row, int vector) {
    return row * kRowVectors + (vector ^ (row % 2 * 4));
  }

  // Starts loading channels [64 step, 64 step + 64); rows past the end become zeros.
  __device__ static void Fetch(MatrixView<const BFloat16> streams, int64_t first_row,
                               const Vector16* fn, int step, Stage& stage) {
#pragma unroll
    for (int i = 0; i < kBlockRows * kRowVectors / kThreads; ++i) {
      const int index = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = index / kRowVectors;
      const int vector = index % kRowVectors;
      const int64_t source = first_row + row;
      const bool exists = source < streams.rows;
      __pipeline_memcpy_async(&stage.rows[RowVector(row, vector)],
                              streams.Row(exists ? source : 0) + step * kStep + vector * 8, 16,
                              exists ? 0 : 16);
    }
    for (int i = threadIdx.x; i < kFnVectors; i += kThreads) {
      __pipeline_memcpy_async(&stage.fn[i], fn + int64_t{step} * kFnVectors + i, 16);
    }
  }

  // What a lane of a warp with 32 rows holds: two tiles of 16 rows by 8 kTiles mixes as mma leaves
  // them, and the squares of its channels of rows lane / 4 + 8 i.
  struct Sums {
    float mixes[2][kTiles][4] = {};
    float squares[4] = {};

    __device__ void Add(const Sums& other) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int k = 0; k < 4; ++k) mixes[m][tile][k] += other.mixes[m][tile][k];
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) squares[i] += other.squares[i];
    }
  };

  __device__ static void Multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                  uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }

  // A lane's eight channels of a row serve two products of 16 channels: the order of channels in a
  // sum is free, and fn is packed in the same one.
  __device__ static void Accumulate(const Stage& stage, Sums& sums) {
    const int lane = threadIdx.x % 32;
    const int first_row = static_cast<int>(threadIdx.x) / 32 * 32 + lane / 4;
    Sums step;
#pragma unroll
    for (int half = 0; half < kStep / 32; ++half) {
      Vector16 a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = stage.rows[RowVector(first_row + 8 * i, half * 4 + lane % 4)];
        const uint32_t words[4] = {a[i].x, a[i].y, a[i].z, a[i].w};
#pragma unroll
        for (const uint32_t pair : words) {
          step.squares[i] = __fmaf_rn(LowBf16(pair), LowBf16(pair), step.squares[i]);
          step.squares[i] = __fmaf_rn(HighBf16(pair), HighBf16(pair), step.squares[i]);
        }
      }
#pragma unroll
      for (int part = kFnParts - 1; part >= 0; --part) {  // small terms first
        Vector16 b[kTiles];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          b[tile] = stage.fn[((half * kTiles + tile) * kFnParts + part) * 32 + lane];
        }
        // Products that follow each other go to different sums: none waits for its predecessor.
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            Multiply(step.mixes[m][tile], a[2 * m].x, a[2 * m + 1].x, a[2 * m].y, a[2 * m + 1].y,
                     b[tile].x, b[tile].y);
          }
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            Multiply(step.mixes[m][tile], a[2 * m].z, a[2 * m + 1].z, a[2 * m].w, a[2 * m + 1].w,
                     b[tile].z, b[tile].w);
          }
        }
      }
    }
    sums.Add(step);
  }

  // partial [segments or groups, rows, kColumns].
  __device__ static void Store(const Sums& sums, int64_t first_row, int64_t rows, int part,
                               float* partial) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first_row + threadIdx.x / 32 * 32 + lane / 4 + 8 * i;
      const float squares = LaneSum<4>(sums.squares[i]);
      if (row >= rows) continue;
      float* out = partial + (part * rows + row) * kColumns;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float* d = sums.mixes[i / 2][tile] + i % 2 * 2;
        out[8 * tile + lane % 4 * 2] = d[0];
        out[8 * tile + lane % 4 * 2 + 1] = d[1];
      }
      if (lane % 4 == 0) out[8 * kTiles] = squares;
    }
  }
};

// Block (x, y): 128 rows, the y-th of gridDim.y equal runs of channels, each whole groups or, with
// kBySegment, one segment.
template <int kTiles, bool kBySegment>
__global__ void __launch_bounds__(HcProjection<kTiles>::kThreads, 2)
    HcProjectKernel(MatrixView<const BFloat16> streams, const Vector16* fn, int segments,
                    float* partial) {
  using Projection = HcProjection<kTiles>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto* stages = reinterpret_cast<typename Projection::Stage*>(shared);
  const int64_t first_row = int64_t{blockIdx.x} * Projection::kBlockRows;
  const int all_steps = static_cast<int>(streams.cols) / Projection::kStep;
  const int segment_steps = all_steps / segments;
  const int group_steps = all_steps / kGroups;
  const int steps = all_steps / static_cast<int>(gridDim.y);
  const int first_step = static_cast<int>(blockIdx.y) * steps;
  const auto fetch = [&](int step) {
    if (step < steps) {
      Projection::Fetch(streams, first_row, fn, first_step + step,
                        stages[step % Projection::kStages]);
    }
    __pipeline_commit();
  };
  for (int step = 0; step < Projection::kStages - 1; ++step) fetch(step);
  typename Projection::Sums segment;
  typename Projection::Sums group;
  for (int step = 0; step < steps; ++step) {
    __pipeline_wait_prior(Projection::kStages - 2);
    __syncthreads();
    fetch(step + Projection::kStages - 1);
    Projection::Accumulate(stages[step % Projection::kStages], segment);
    const int done = first_step + step + 1;
    if (done % segment_steps != 0) continue;
    if constexpr (kBySegment) {
      Projection::Store(segment, first_row, streams.rows, done / segment_steps - 1, partial);
    } else {
      group.Add(segment);
      segment = {};
      if (done % group_steps != 0) continue;
      Projection::Store(group, first_row, streams.rows, done / group_steps - 1, partial);
      group = {};
    }
  }
}

}  // namespace baton::kernels::cuda
