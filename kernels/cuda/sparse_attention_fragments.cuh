#pragma once

#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/sparse_attention_rows.cuh"

// How accumulators of the tensor cores become results. A thread holds of each fragment two heads
// (rows `head` and head + 8 of the piece of work) and, of every eight channels, two.

namespace baton::kernels::cuda {

// Of the two heads of a thread.
struct Pair {
  float v[2];
};

// Scaled scores are in units of log 2.
struct Softmax {
  Pair maximum = {{-INFINITY, -INFINITY}};
  Pair sum = {{0, 0}};
  Pair sinks = {{0, 0}};
};

// To two units in the last place, which vanish in the rounding to BF16; tiny results become 0.
__device__ inline float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Four lanes hold two channels each of four groups of eight; afterwards each holds one group.
__device__ inline Vector16 GatherGroup(uint32_t (&words)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int distance = 2; distance > 0; distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      const uint32_t sent = upper ? words[i] : words[i + distance];
      const uint32_t received = __shfl_xor_sync(kFullWarp, sent, distance);
      if (upper) {
        words[i] = received;
      } else {
        words[i + distance] = received;
      }
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// Results of one head, row `i` of the fragments, times `factor`. All lanes of the warp call; those
// of a head that does not exist with `out` null.
template <int kValues>
__device__ inline void StoreOutput(BFloat16* out, const float (&o)[kValues], int i, float factor) {
#pragma unroll
  for (int block = 0; block < kValues / 4; block += 4) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* pair = &o[4 * (block + j) + 2 * i];
      words[j] = PackBf16(pair[0] * factor, pair[1] * factor);
    }
    const Vector16 group = GatherGroup(words);
    if (out != nullptr) Store16(out + (block + threadIdx.x % 4) * 8, group);
  }
}
template <int kValues>
__device__ inline void StorePart(float* out, const float (&o)[kValues], int i) {
#pragma unroll
  for (int j = 0; j < kValues / 4; ++j) {
    const float* pair = &o[4 * j + 2 * i];
    *reinterpret_cast<float2*>(out + j * 8 + threadIdx.x % 4 * 2) = {pair[0], pair[1]};
  }
}

// What the thread's outputs are to be multiplied with. Where the row is split that is left to those
// who join the parts, and `reports` stores what they need.
__device__ inline Pair FinishSoftmax(const SparseAttentionParams& params, const AttentionPlan& plan,
                                     const AttentionWork& work, int head_of_thread,
                                     const Softmax& softmax, bool reports) {
  Pair factor;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    factor.v[i] = 1.0f / (softmax.sum.v[i] + Exp2(softmax.sinks.v[i] - softmax.maximum.v[i]));
    const int head = work.head_begin + head_of_thread + 8 * i;
    if (work.parts == 1 || !reports || head >= params.heads || threadIdx.x % 4 != 0) continue;
    const int64_t part = PartOf(params, plan, work.row, head, work.split);
    plan.partial_maxima[part] = softmax.maximum.v[i];
    plan.partial_sums[part] = softmax.sum.v[i];
  }
  return factor;
}

// Stores 2 kValues channels from first_channel on.
template <int kValues>
__device__ inline void StoreHeads(const SparseAttentionParams& params, const AttentionWork& work,
                                  int head_of_thread, int first_channel, const Pair& factor,
                                  const float (&o)[kValues]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = work.head_begin + head_of_thread + 8 * i;
    const int64_t row_head = static_cast<int64_t>(work.row) * params.heads + head;
    StoreOutput(head < params.heads ? params.out + row_head * kKvDim + first_channel : nullptr, o,
                i, factor.v[i]);
  }
}

// The same of a row that is split.
template <int kValues>
__device__ inline void StoreParts(const SparseAttentionParams& params, const AttentionPlan& plan,
                                  const AttentionWork& work, int head_of_thread, int first_channel,
                                  const float (&o)[kValues]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = work.head_begin + head_of_thread + 8 * i;
    if (head >= params.heads) continue;
    const int64_t part = PartOf(params, plan, work.row, head, work.split);
    StorePart(plan.partial_outputs + part * kKvDim + first_channel, o, i);
  }
}

}  // namespace baton::kernels::cuda
