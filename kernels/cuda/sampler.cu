#include <cfloat>
#include <cmath>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/sampler_block.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

// Philox4x32-10, of which engine/sampler/philox.h tells more; uniform in [0, 1).
__device__ double UniformAt(uint64_t seed, uint64_t position) {
  uint32_t counter[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0,
                         0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                              static_cast<uint32_t>(product1),
                              static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                              static_cast<uint32_t>(product0)};
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  const uint64_t bits = uint64_t{counter[1]} << 32 | counter[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Those of the ids 0 .. count - 1 that are still in play: a logit above `key`, or equal to it and
// an id up to `last_tie`.
struct Kept {
  uint32_t key = 0;
  int last_tie = INT32_MAX;
  __device__ bool Has(uint32_t ordered, int id) const {
    return ordered > key || (ordered == key && id <= last_tie);
  }
};

struct Scratch {
  union {
    uint64_t words[kSampleWarps];
    double doubles[kSampleWarps];
    int ints[kSampleWarps];
  };
  uint32_t low[256];  // of the histogram's 64-bit sums: shared memory adds 32 bits at a time
  uint32_t high[256];
  uint64_t rest;   // of what is looked for, within the chosen bin
  uint32_t digit;  // the chosen bin
  int found;
};

// One row, by all threads of a block.
class RowSampler {
 public:
  __device__ RowSampler(const float* logits, int count, const SampleRow& row, const int32_t* banned,
                        Scratch& scratch)
      : logits_(logits),
        count_(count),
        row_(row),
        banned_(banned + row.banned_begin),
        banned_count_(row.banned_count),
        chunk_((count + kSampleThreads - 1) / kSampleThreads),
        scratch_(scratch) {}

  __device__ int Run() {
    uint64_t best = Best();
    if (best == kBroken) return kBrokenLogits;
    if (best == 0 && banned_count_ > 0) {
      banned_count_ = 0;
      best = Best();
    }
    if (best == 0) return kBrokenLogits;
    if (row_.temperature == 0) return static_cast<int>(~static_cast<uint32_t>(best));
    best_ = FromOrderedBits(static_cast<uint32_t>(best >> 32));
    if (row_.top_k > 0 && row_.top_k < count_) KeepTopK();
    if (row_.top_p < 1) KeepTopP();
    return Draw();
  }

 private:
  static constexpr uint64_t kBroken = ~uint64_t{0};

  // 0 where the id is out of play from the start.
  __device__ uint32_t Ordered(int id) const {
    const float logit = logits_[id];
    if (logit == -INFINITY) return 0;
    return IsBanned(id) ? 0 : OrderedBits(logit);
  }
  __device__ bool IsBanned(int id) const {
    int begin = 0;
    int end = banned_count_;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (banned_[middle] == id) return true;
      (banned_[middle] < id ? begin : end) = banned_[middle] < id ? middle + 1 : middle;
    }
    return false;
  }
  __device__ double Weight(uint32_t ordered) const {
    return exp((static_cast<double>(FromOrderedBits(ordered)) - best_) / row_.temperature);
  }
  // Sums of these do not depend on their order. 2^46 times at most 2^17 of them fit.
  __device__ uint64_t FixedWeight(uint32_t ordered) const {
    return static_cast<uint64_t>(Weight(ordered) * 0x1p46);
  }

  // (logit, lowest id) of the best, kBroken, or 0 if nothing is in play.
  __device__ uint64_t Best() {
    uint64_t best = 0;
    for (int id = threadIdx.x; id < count_; id += kSampleThreads) {
      if (!(logits_[id] <= FLT_MAX)) {
        best = kBroken;
      } else if (const uint32_t ordered = Ordered(id); ordered != 0) {
        const uint64_t rank = uint64_t{ordered} << 32 | static_cast<uint32_t>(~id);
        best = rank > best ? rank : best;
      }
    }
    return BlockMax(best, scratch_.words);
  }

  __device__ void AddTo(uint32_t bin, uint64_t value) {
    const auto low = static_cast<uint32_t>(value);
    const uint32_t carry = atomicAdd(&scratch_.low[bin], low) > ~low ? 1 : 0;
    const uint32_t high = static_cast<uint32_t>(value >> 32) + carry;
    if (high != 0) atomicAdd(&scratch_.high[bin], high);
  }
  __device__ uint64_t Sum(int bin) const {
    return uint64_t{scratch_.high[bin]} << 32 | scratch_.low[bin];
  }

  // Walks down from the largest logit until the measure of what it has passed reaches `wanted`
  // (> 0), and leaves in play what that took. kByWeight: the measure is FixedWeight, else the
  // number. Eight bits of the key at a time. Where everything has less, everything stays.
  template <bool kByWeight>
  __device__ void KeepUntil(uint64_t wanted) {
    uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      if (threadIdx.x < 256) scratch_.low[threadIdx.x] = scratch_.high[threadIdx.x] = 0;
      __syncthreads();
      for (int id = threadIdx.x; id < count_; id += kSampleThreads) {
        const uint32_t ordered = Ordered(id);
        if (ordered == 0 || !kept_.Has(ordered, id)) continue;
        if (shift < 24 && ordered >> (shift + 8) != prefix) continue;
        AddTo(ordered >> shift & 255, kByWeight ? FixedWeight(ordered) : 1);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        uint64_t rest = wanted;
        int digit = 255;
        while (digit > 0 && Sum(digit) < rest) rest -= Sum(digit--);
        scratch_.rest = rest;
        scratch_.digit = digit;
      }
      __syncthreads();
      wanted = scratch_.rest;
      prefix = prefix << 8 | scratch_.digit;
      __syncthreads();
    }
    uint64_t each = 1;
    if (kByWeight) each = FixedWeight(prefix);
    const uint64_t ties = each == 0 ? count_ : (wanted + each - 1) / each;
    kept_ = {prefix,
             TieNumber(prefix, static_cast<int>(ties > kMaxSampleVocabulary ? kMaxSampleVocabulary
                                                                            : ties))};
  }

  // The id of the ties-th of those in play that have this logit; the largest id if there are fewer.
  __device__ int TieNumber(uint32_t key, int ties) {
    const int first = threadIdx.x * chunk_;
    const int end = min(first + chunk_, count_);
    int mine = 0;
    for (int id = first; id < end; ++id) mine += Ordered(id) == key && kept_.Has(key, id) ? 1 : 0;
    if (threadIdx.x == 0) scratch_.found = INT32_MAX;
    int total = 0;
    int seen = BlockSumBefore(mine, scratch_.ints, total);
    if (seen < ties && seen + mine >= ties) {
      for (int id = first; id < end; ++id) {
        if (Ordered(id) == key && kept_.Has(key, id) && ++seen == ties) {
          scratch_.found = id;
          break;
        }
      }
    }
    __syncthreads();
    const int found = scratch_.found;
    __syncthreads();
    return found;
  }

  __device__ void KeepTopK() { KeepUntil<false>(row_.top_k); }

  __device__ void KeepTopP() {
    uint64_t mine = 0;
    for (int id = threadIdx.x; id < count_; id += kSampleThreads) {
      const uint32_t ordered = Ordered(id);
      if (ordered != 0 && kept_.Has(ordered, id)) mine += FixedWeight(ordered);
    }
    uint64_t total = 0;
    BlockSumBefore(mine, scratch_.words, total);
    const double wanted = ceil(static_cast<double>(row_.top_p) * static_cast<double>(total));
    KeepUntil<true>(wanted < 1 ? 1 : static_cast<uint64_t>(wanted));
  }

  __device__ double KeptWeight(int id) const {
    const uint32_t ordered = Ordered(id);
    if (ordered == 0 || !kept_.Has(ordered, id)) return 0;
    const double weight = Weight(ordered);
    return weight < row_.min_p ? 0 : weight;
  }

  // Thread t has ids t * chunk_ .. so that sums over threads are sums over ascending ids.
  __device__ int Draw() {
    const int first = threadIdx.x * chunk_;
    const int end = min(first + chunk_, count_);
    double mine = 0;
    int last = -1;  // with any weight
    for (int id = first; id < end; ++id) {
      const double weight = KeptWeight(id);
      mine += weight;
      if (weight > 0) last = id;
    }
    double total = 0;
    const double before = BlockSumBefore(mine, scratch_.doubles, total);
    const double target = UniformAt(row_.seed, static_cast<uint64_t>(row_.position)) * total;
    // Should rounding leave the target just past the last sum, the last id it is.
    const int fallback = BlockMax(last, scratch_.ints);
    if (threadIdx.x == 0) scratch_.found = fallback;
    __syncthreads();
    const bool here = before + mine > target && last >= 0;
    const int winner =
        -BlockMax(here ? -static_cast<int>(threadIdx.x) : -kSampleThreads, scratch_.ints);
    if (static_cast<int>(threadIdx.x) == winner) {
      double mass = before;
      int token = last;
      for (int id = first; id < end; ++id) {
        mass += KeptWeight(id);
        if (mass > target) {
          token = id;
          break;
        }
      }
      scratch_.found = token;
    }
    __syncthreads();
    return scratch_.found;
  }

  const float* logits_;
  int count_;
  SampleRow row_;
  const int32_t* banned_;
  int banned_count_;
  int chunk_;
  Scratch& scratch_;
  Kept kept_;
  float best_ = 0;
};

__global__ void __launch_bounds__(kSampleThreads) SampleRows(SampleParams params) {
  __shared__ Scratch scratch;
  const int64_t row = blockIdx.x;
  RowSampler sampler(params.logits.Row(row), static_cast<int>(params.logits.cols), params.rows[row],
                     params.banned, scratch);
  const int token = sampler.Run();
  if (threadIdx.x == 0) params.tokens[row] = token;
}

}  // namespace

void Sample(const SampleParams& params, CUstream_st* stream) {
  BATON_CHECK(params.logits.cols > 0 && params.logits.cols <= kMaxSampleVocabulary)
      << "a vocabulary of " << params.logits.cols;
  if (params.logits.rows == 0) return;
  SampleRows<<<static_cast<unsigned>(params.logits.rows), kSampleThreads, 0, stream>>>(params);
  CheckLaunch("SampleRows");
}

}  // namespace baton::kernels::cuda
