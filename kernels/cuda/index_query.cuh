#pragma once

#include <cmath>

#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/hadamard.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/index_query.h"
#include "kernels/index_select.h"
#include "kernels/rope.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

inline constexpr int kQueryValues = 8;                        // of a lane: 16 bytes
inline constexpr int kQueryLanes = kIndexDim / kQueryValues;  // of a head
inline constexpr int kQueryThreads = 256;

// A policy only so that tests can build the query that is not rotated like its keys.
struct RotatedQuery {
  static constexpr bool kHadamard = true;
};

// Rotation of the lane's pairs; `first` is the first pair. Products are not fused, like on the CPU.
__device__ inline void RotatePairs(const float* cos_sin, int first, float (&values)[kQueryValues]) {
#pragma unroll
  for (int i = 0; i < kQueryValues / 2; ++i) {
    const float cosine = cos_sin[first + i];
    const float sine = cos_sin[kRopePairs + first + i];
    const float a = values[2 * i];
    const float b = values[2 * i + 1];
    values[2 * i] = RoundToBf16(__fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine)));
    values[2 * i + 1] = RoundToBf16(__fadd_rn(__fmul_rn(a, sine), __fmul_rn(b, cosine)));
  }
}

// FakeQuantFp4: four lanes hold a group of 32.
__device__ inline void RoundToFp4Grid(uint32_t (&words)[4]) {
  const uint32_t scale = SplatBf16(Fp4Scale(LargerHalf(LaneMaxPair<4>(MaxMagnitudePair(words)))));
#pragma unroll
  for (uint32_t& word : words) word = RoundPairToGrid<1>(word, scale);
}

template <typename Policy>
__global__ void __launch_bounds__(kQueryThreads)
    IndexQueryKernel(const IndexQueryParams params, float weight_scale) {
  AwaitPredecessors();
  const int64_t thread = int64_t{blockIdx.x} * kQueryThreads + threadIdx.x;
  const int64_t vector = thread / kQueryLanes;  // (row, head)
  const int lane = threadIdx.x % kQueryLanes;
  const bool exists = vector < static_cast<int64_t>(params.rows) * params.heads;
  uint32_t* address = reinterpret_cast<uint32_t*>(params.q) + (thread * kQueryValues) / 2;
  Vector16 words = {0, 0, 0, 0};
  if (exists) words = Load16(address);
  float values[kQueryValues] = {LowBf16(words.x),  HighBf16(words.x), LowBf16(words.y),
                                HighBf16(words.y), LowBf16(words.z),  HighBf16(words.z),
                                LowBf16(words.w),  HighBf16(words.w)};
  constexpr int kFirstRopeLane = (kIndexDim - kRopeDim) / kQueryValues;
  if (exists && lane >= kFirstRopeLane) {
    RotatePairs(params.rope + vector / params.heads * kRopeDim,
                (lane - kFirstRopeLane) * kQueryValues / 2, values);
  }
  if constexpr (Policy::kHadamard) {
    HadamardInThread(values);
    HadamardAcrossLanes<kQueryLanes>(values);
#pragma unroll
    for (float& value : values) value *= 0.08838834764831845f;
  }
  uint32_t rounded[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) rounded[i] = PackBf16(values[2 * i], values[2 * i + 1]);
  if (params.numerics == Numerics::kReference) RoundToFp4Grid(rounded);
  if (!exists) return;
  Store16(address, {rounded[0], rounded[1], rounded[2], rounded[3]});
  if (lane == 0) {
    const float weight = __uint_as_float(uint32_t{params.w[vector].bits} << 16);
    params.w[vector].bits = static_cast<uint16_t>(PackBf16(__fmul_rn(weight, weight_scale), 0));
  }
}

template <typename Policy>
void LaunchIndexQuery(const IndexQueryParams& params, CUstream_st* stream) {
  BATON_CHECK(params.heads > 0) << "index heads " << params.heads;
  const int64_t threads = static_cast<int64_t>(params.rows) * params.heads * kQueryLanes;
  if (threads == 0) return;
  const float scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(kIndexDim * params.heads)));
  const auto blocks = static_cast<unsigned>((threads + kQueryThreads - 1) / kQueryThreads);
  LaunchClosely(IndexQueryKernel<Policy>, {dim3(blocks), kQueryThreads}, stream, params, scale);
  CheckLaunch("IndexQuery");
}

}  // namespace baton::kernels::cuda
