#include "common/base/check.h"
#include "kernels/compressor.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/topk.h"
#include "kernels/runtime/error.h"

// One block a row. Candidates are ordered by one 55-bit number each: the score's order, then the
// lower index. No two are equal, so the k best are those at or above the k-th, which a radix select
// finds 11 bits at a time. Passes go over the scores in device memory until few enough candidates
// are left to be kept in shared memory; that is after one pass unless scores lie very close.

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kDigitBits = 11;
constexpr int kIndexBits = 5 * kDigitBits - 32;
constexpr int kBins = 1 << kDigitBits;
constexpr int kFirstShift = 32 + kIndexBits - kDigitBits;
constexpr int kCapacity = 2 * kMaxTopK;  // candidates kept in shared memory
constexpr int kVectorsAtOnce = 2;        // loads in flight of a thread

struct Shared {
  uint64_t kept[kCapacity];
  uint32_t bins[kBins];
  uint32_t warp_totals[kWarps];
  uint32_t digit;
  uint32_t above;  // candidates with a higher digit
  uint32_t inside;
  uint32_t kept_count;
  // then one bit an entry: whether it is selected
};

__device__ uint32_t* SelectedBits(Shared& shared) {
  return reinterpret_cast<uint32_t*>(&shared + 1);
}

// Ascending with the score; NaN lowest; -0 as +0.
__device__ uint64_t Candidate(float score, int index) {
  const uint32_t bits = __float_as_uint(score + 0.0f);
  const uint32_t flipped = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  const uint32_t order = score == score ? flipped : 0;
  return uint64_t{order} << kIndexBits | static_cast<uint32_t>((1 << kIndexBits) - 1 - index);
}
__device__ int IndexOf(uint64_t candidate) {
  return (1 << kIndexBits) - 1 - static_cast<int>(candidate & ((1 << kIndexBits) - 1));
}

// Calls visit(candidate or 0) for the row's n scores; warps stay together.
template <typename Visit>
__device__ void ForEachScore(const float* scores, int n, Visit&& visit) {
  constexpr int kStep = kThreads * 4;
  for (int base = 0; base < n; base += kVectorsAtOnce * kStep) {
    float4 values[kVectorsAtOnce];
#pragma unroll
    for (int i = 0; i < kVectorsAtOnce; ++i) {
      const int index = base + i * kStep + threadIdx.x * 4;
      if (index < n) values[i] = *reinterpret_cast<const float4*>(scores + index);
    }
#pragma unroll
    for (int i = 0; i < kVectorsAtOnce; ++i) {
      const int index = base + i * kStep + threadIdx.x * 4;
      visit(index < n ? Candidate(values[i].x, index) : 0);
      visit(index + 1 < n ? Candidate(values[i].y, index + 1) : 0);
      visit(index + 2 < n ? Candidate(values[i].z, index + 2) : 0);
      visit(index + 3 < n ? Candidate(values[i].w, index + 3) : 0);
    }
  }
}
template <typename Visit>
__device__ void ForEachKept(const Shared& shared, Visit&& visit) {
  const int count = static_cast<int>(shared.kept_count);
  for (int base = 0; base < count; base += kThreads) {
    const int i = base + threadIdx.x;
    visit(i < count ? shared.kept[i] : 0);
  }
}

// Inclusive sum over the block's threads; every thread calls.
__device__ uint32_t BlockScan(Shared& shared, uint32_t value) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t lower = __shfl_up_sync(0xffffffffu, value, distance);
    if (lane >= distance) value += lower;
  }
  __syncthreads();
  if (lane == 31) shared.warp_totals[warp] = value;
  __syncthreads();
  uint32_t before = lane < warp ? shared.warp_totals[lane] : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    before += __shfl_xor_sync(0xffffffffu, before, distance);
  }
  return before + value;
}

// Digits of neighbours are often equal, and atomics to one address queue up: a thread counts runs.
class RunCounter {
 public:
  __device__ explicit RunCounter(uint32_t* bins) : bins_(bins) {}
  __device__ void Add(uint32_t digit) {
    if (digit != digit_) {
      Flush();
      digit_ = digit;
      count_ = 0;
    }
    ++count_;
  }
  __device__ void Flush() {
    if (count_ > 0) atomicAdd(&bins_[digit_], count_);
  }

 private:
  uint32_t* bins_;
  uint32_t digit_ = 0;
  uint32_t count_ = 0;
};

// The candidates still in question are those whose bits from `shift` + kDigitBits on equal
// prefix's; `wanted` of them belong to the k best.
struct Search {
  uint64_t prefix = 0;
  int shift = kFirstShift;
  int wanted = 0;
  int above = 0;          // candidates known to belong to the k best
  bool resolved = false;  // those at or above `prefix` are the k best
};

template <typename ForEach>
__device__ void NarrowByOneDigit(Shared& shared, Search& search, ForEach&& for_each) {
  for (int bin = threadIdx.x; bin < kBins; bin += kThreads) shared.bins[bin] = 0;
  __syncthreads();
  RunCounter counter(shared.bins);
  const int shift = search.shift;
  const uint64_t prefix = search.prefix >> shift >> kDigitBits;
  for_each([&](uint64_t candidate) {
    if (candidate != 0 && candidate >> shift >> kDigitBits == prefix) {
      counter.Add(static_cast<uint32_t>(candidate >> shift) & (kBins - 1));
    }
  });
  counter.Flush();
  __syncthreads();
  // Thread t looks at bins from the highest down: 2 t and 2 t + 1 from the top.
  static_assert(kBins == 2 * kThreads);
  const int high = kBins - 1 - 2 * static_cast<int>(threadIdx.x);
  const uint32_t counts[2] = {shared.bins[high], shared.bins[high - 1]};
  uint32_t before = BlockScan(shared, counts[0] + counts[1]) - counts[0] - counts[1];
  const auto wanted = static_cast<uint32_t>(search.wanted);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (before < wanted && wanted <= before + counts[i]) {
      shared.digit = high - i;
      shared.above = before;
      shared.inside = counts[i];
    }
    before += counts[i];
  }
  __syncthreads();
  search.prefix |= uint64_t{shared.digit} << shift;
  search.above += static_cast<int>(shared.above);
  search.wanted -= static_cast<int>(shared.above);
  search.resolved = static_cast<int>(shared.inside) == search.wanted;
}

__device__ void Keep(Shared& shared, uint64_t candidate, bool wanted) {
  const uint32_t keepers = __ballot_sync(0xffffffffu, wanted);
  if (keepers == 0) return;
  const int lane = threadIdx.x % 32;
  uint32_t base = 0;
  if (lane == 0) base = atomicAdd(&shared.kept_count, __popc(keepers));
  base = __shfl_sync(0xffffffffu, base, 0);
  if (wanted) shared.kept[base + __popc(keepers & ((1u << lane) - 1))] = candidate;
}

// Writes the indices whose bits are set, in ascending order.
__device__ void EmitAscending(Shared& shared, int n, int32_t* selected) {
  const uint32_t* bits = SelectedBits(shared);
  const int words = (n + 31) / 32;
  const int words_per_thread = (words + kThreads - 1) / kThreads;
  const int begin = min(words, static_cast<int>(threadIdx.x) * words_per_thread);
  const int end = min(words, begin + words_per_thread);
  uint32_t count = 0;
  for (int i = begin; i < end; ++i) count += __popc(bits[i]);
  uint32_t at = BlockScan(shared, count) - count;
  for (int i = begin; i < end; ++i) {
    for (uint32_t word = bits[i]; word != 0; word &= word - 1) {
      selected[at++] = i * 32 + __ffs(word) - 1;
    }
  }
}

__device__ void TakeFirst(int count, int k, int32_t* selected) {
  for (int i = threadIdx.x; i < k; i += kThreads) selected[i] = i < count ? i : -1;
}

__global__ void __launch_bounds__(kThreads, 2)
    TopKKernel(const __grid_constant__ TopKParams params) {
  AwaitPredecessors();
  extern __shared__ __align__(16) uint8_t dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  const int row = params.first_row + blockIdx.x;
  int32_t* selected = params.selected + static_cast<int64_t>(row) * params.k;
  const bool padded = params.batch.sequence[row] < 0;
  const int n = padded ? 0 : (params.batch.position[row] + 1) / kCsaRatio;
  if (n <= params.k) return TakeFirst(n, params.k, selected);

  const float* scores = params.scores + int64_t{blockIdx.x} * params.stride;
  const auto for_each_score = [&](auto&& visit) { ForEachScore(scores, n, visit); };
  const auto for_each_kept = [&](auto&& visit) { ForEachKept(shared, visit); };
  uint32_t* bits = SelectedBits(shared);
  for (int i = threadIdx.x; i < (n + 31) / 32; i += kThreads) bits[i] = 0;
  if (threadIdx.x == 0) shared.kept_count = 0;

  Search search = {.wanted = params.k};
  NarrowByOneDigit(shared, search, for_each_score);
  while (search.above + static_cast<int>(shared.inside) > kCapacity) {
    search.shift -= kDigitBits;
    NarrowByOneDigit(shared, search, for_each_score);
  }
  for_each_score([&](uint64_t candidate) {
    Keep(shared, candidate, candidate != 0 && candidate >= search.prefix);
  });
  __syncthreads();
  while (!search.resolved) {
    search.shift -= kDigitBits;
    NarrowByOneDigit(shared, search, for_each_kept);
  }
  for_each_kept([&](uint64_t candidate) {
    if (candidate == 0 || candidate < search.prefix) return;
    const int index = IndexOf(candidate);
    atomicOr(&bits[index / 32], 1u << (index % 32));
  });
  __syncthreads();
  EmitAscending(shared, n, selected);
}

}  // namespace

void TopK(const TopKParams& params, CUstream_st* stream) {
  BATON_CHECK(params.k > 0 && params.k <= kMaxTopK) << "top-k of " << params.k;
  BATON_CHECK(params.max_entries <= kMaxTopKScores) << "top-k among " << params.max_entries;
  BATON_CHECK(params.stride % 4 == 0 && params.stride >= params.max_entries)
      << "stride " << params.stride;
  if (params.rows == 0) return;
  const size_t bytes = sizeof(Shared) + (params.max_entries + 31) / 32 * sizeof(uint32_t);
  CheckCuda(cudaFuncSetAttribute(TopKKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(bytes)),
            "cudaFuncSetAttribute");
  LaunchClosely(TopKKernel, {dim3(params.rows), kThreads, bytes}, stream, params);
  CheckLaunch("TopK");
}

}  // namespace baton::kernels::cuda
