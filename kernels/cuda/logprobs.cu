#include <cmath>
#include <cstdint>
#include <limits>

#include "common/base/check.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sampler_block.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

// Ranks order by logit, then by lower id. None is 0.
__device__ uint64_t RankOf(const float* logits, int id) {
  return uint64_t{OrderedBits(logits[id])} << 32 | static_cast<uint32_t>(~id);
}
__device__ int IdOf(uint64_t rank) { return static_cast<int>(~static_cast<uint32_t>(rank)); }
__device__ float LogitOf(uint64_t rank) {
  return FromOrderedBits(static_cast<uint32_t>(rank >> 32));
}

// One row by a block. Thread t looks after the ids t, t + kSampleThreads, ... and knows the best of
// those that have not been put out. When that one is, all threads together find its successor: one
// read each instead of a hundred in a row.
__global__ void __launch_bounds__(kSampleThreads) LogprobRows(LogprobsParams params) {
  __shared__ union {
    uint64_t words[kSampleWarps];
    double doubles[kSampleWarps];
  } scratch;
  const int64_t row = blockIdx.x;
  const int32_t token = params.tokens[row];
  if (params.out_row[row] < 0 || token < 0) return;
  const float* logits = params.logits.Row(row);
  const int count = static_cast<int>(params.logits.cols);
  TokenLogprob* out = params.out.Row(params.out_row[row]);

  uint64_t mine = 0;
  for (int id = threadIdx.x; id < count; id += kSampleThreads) {
    mine = max(mine, RankOf(logits, id));
  }
  uint64_t best = BlockMax(mine, scratch.words);
  const float largest = LogitOf(best);
  double part = 0;
  for (int id = threadIdx.x; id < count; id += kSampleThreads) part += expf(logits[id] - largest);
  double sum = 0;
  BlockSumBefore(part, scratch.doubles, sum);
  const double shift = static_cast<double>(largest) + log(sum);

  if (threadIdx.x == 0) out[0] = {token, static_cast<float>(logits[token] - shift)};
  for (int64_t place = 1; place < params.out.cols; ++place) {
    if (threadIdx.x == 0) {
      out[place] = best == 0 ? TokenLogprob{-1, -INFINITY}
                             : TokenLogprob{IdOf(best), static_cast<float>(LogitOf(best) - shift)};
    }
    if (place + 1 == params.out.cols || best == 0) continue;
    const int owner = IdOf(best) % kSampleThreads;
    uint64_t next = 0;
    for (int id = owner + kSampleThreads * threadIdx.x; id < count;
         id += kSampleThreads * kSampleThreads) {
      const uint64_t rank = RankOf(logits, id);
      if (rank < best) next = max(next, rank);
    }
    next = BlockMax(next, scratch.words);
    if (static_cast<int>(threadIdx.x) == owner) mine = next;
    best = BlockMax(mine, scratch.words);
  }
}

}  // namespace

void Logprobs(const LogprobsParams& params, CUstream_st* stream) {
  BATON_CHECK(params.logits.cols > 0 &&
              params.logits.cols < std::numeric_limits<int32_t>::max() / 2)
      << "a vocabulary of " << params.logits.cols;
  if (params.logits.rows == 0) return;
  LogprobRows<<<static_cast<unsigned>(params.logits.rows), kSampleThreads, 0, stream>>>(params);
  CheckLaunch("LogprobRows");
}

}  // namespace baton::kernels::cuda
