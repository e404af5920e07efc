#pragma once

#include <cstdint>

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/grouped_weights.cuh"

// Which tile of a grouped product a block computes: blocks take every gridDim.x-th of the list
// (expert, 256 rows of its weight, kTokens of its slots). Neighbours in the list share weights.

namespace baton::kernels::cuda {

struct ExpertTile {
  int expert;
  int row_block;  // of 256 weight rows
  int first_slot;
  int slots;  // 1 to kTokens
};

// In shared memory: first slot of each expert, and the slot blocks before it.
struct TileList {
  int begin[kMaxExperts + 2];
  int before[kMaxExperts + 2];  // the last of experts + 1 is the sum; even, for what follows

  // All threads of the block; a __syncthreads must follow.
  template <int kTokens>
  __device__ void Init(const int32_t* expert_begin, int experts) {
    if (threadIdx.x >= 32) return;
    int total = 0;
    for (int first = 0; first < experts; first += 32) {
      const int expert = first + static_cast<int>(threadIdx.x);
      int blocks = 0;
      if (expert < experts) {
        begin[expert] = expert_begin[expert];
        blocks = (expert_begin[expert + 1] - expert_begin[expert] + kTokens - 1) / kTokens;
      }
      int sum = blocks;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(kFullWarp, sum, distance);
        if (static_cast<int>(threadIdx.x) >= distance) sum += other;
      }
      if (expert < experts) before[expert] = total + sum - blocks;
      total += __shfl_sync(kFullWarp, sum, 31);
    }
    if (threadIdx.x != 0) return;
    begin[experts] = expert_begin[experts];
    before[experts] = total;
  }

  template <int kTokens>
  __device__ ExpertTile At(int index, int experts, int row_blocks) const {
    const int wanted = index / row_blocks;
    int low = 0;  // the last expert with before[low] <= wanted
    int high = experts;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (before[middle] <= wanted ? low : high) = middle;
    }
    const int slot_blocks = before[low + 1] - before[low];
    const int within = index - before[low] * row_blocks;
    const int first = begin[low] + within % slot_blocks * kTokens;
    return {low, within / slot_blocks, first, min(kTokens, begin[low + 1] - first)};
  }
};

}  // namespace baton::kernels::cuda
