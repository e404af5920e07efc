#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/segments.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 4;
constexpr int kVectors = 4;  // of a lane, all loaded before the first is stored
constexpr int64_t kPass = int64_t{16} * 32 * kVectors;  // staging bytes of a warp at a time

// The last segment that starts at or before `offset`, by all lanes of a warp together.
__device__ int FindSegment(const SegmentList& list, int64_t offset) {
  const Segment* segments = list.segments;
  const int lane = threadIdx.x % 32;
  // Segments are mostly of one size: it is near where it then would be.
  const float share = static_cast<float>(offset) / static_cast<float>(list.bytes);
  const int near = max(0, min(static_cast<int>(share * list.count) - 16, list.count - 32));
  const bool in_front = near + lane < list.count && segments[near + lane].offset <= offset;
  const uint32_t all_in_front = __ballot_sync(kFullWarp, in_front);
  if (all_in_front != 0 && (all_in_front >> 31 == 0 || near + 32 >= list.count)) {
    return near + 31 - __clz(all_in_front);
  }
  int begin = 0;  // starts at or before; `end` does not
  int end = list.count;
  while (end - begin > 1) {
    const int step = (end - begin + 31) / 32;
    const int probe = begin + lane * step;
    const bool before = probe < end && segments[probe].offset <= offset;
    const int last = 31 - __clz(__ballot_sync(kFullWarp, before));
    begin += last * step;
    end = min(end, begin + step);
  }
  return begin;
}

__device__ uint64_t VectorTerms(const Vector16& value, int64_t vector) {
  const uint64_t factors = DigestFactors(vector);
  return DigestTerm(factors, 0, value.x) + DigestTerm(factors, 1, value.y) +
         DigestTerm(factors, 2, value.z) + DigestTerm(factors, 3, value.w);
}

// Copies [begin, end), at most kPass bytes, whose segments are all of whole vectors. Lane l < count
// holds the l-th segment: its offset, and where the staging buffer's first byte would lie if the
// segment went on to there.
template <bool kGather>
__device__ uint64_t CopyVectors(int64_t segment_offset, uint64_t segment_base, int count,
                                int64_t begin, int64_t end, std::byte* staging) {
  const int64_t first = begin + threadIdx.x % 32 * 16;
  uint64_t base[kVectors] = {};
  for (int i = 0; i < count; ++i) {
    const int64_t offset = __shfl_sync(kFullWarp, segment_offset, i);
    const uint64_t segment = __shfl_sync(kFullWarp, segment_base, i);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (first + 512 * k >= offset) base[k] = segment;
    }
  }
  Vector16 values[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int64_t at = first + 512 * k;
    if (at >= end) continue;
    values[k] =
        LoadStreaming16(kGather ? reinterpret_cast<const std::byte*>(base[k] + at) : staging + at);
  }
  uint64_t sum = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int64_t at = first + 512 * k;
    if (at >= end) continue;
    Store16(kGather ? staging + at : reinterpret_cast<std::byte*>(base[k] + at), values[k]);
    sum += VectorTerms(values[k], at / 16);
  }
  return sum;
}

__device__ uint64_t CopyWords(const uint32_t* source, uint32_t* target, int64_t first,
                              int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = threadIdx.x % 32; i < count; i += 32) {
    const uint32_t word = source[i];
    target[i] = word;
    sum += DigestTerm(DigestFactors((first + i) / 4), static_cast<int>((first + i) % 4), word);
  }
  return sum;
}

// Copies a slab of any segments, from number `index` on, word by word.
template <bool kGather>
__device__ uint64_t CopySegments(const SegmentList& list, int index, int64_t begin, int64_t end,
                                 std::byte* staging) {
  uint64_t sum = 0;
  for (; index < list.count; ++index) {
    const Segment segment = list.segments[index];
    if (segment.offset >= end) break;
    const int64_t from = max(begin, segment.offset);
    const int64_t to = min(end, segment.offset + segment.bytes);
    if (from >= to) continue;
    auto* data = reinterpret_cast<uint32_t*>(segment.data + (from - segment.offset));
    auto* staged = reinterpret_cast<uint32_t*>(staging + from);
    sum += kGather ? CopyWords(data, staged, from / 4, (to - from) / 4)
                   : CopyWords(staged, data, from / 4, (to - from) / 4);
  }
  return sum;
}

// A warp `slab` bytes of the staging buffer, whatever segments they hold.
template <bool kGather>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    SegmentsKernel(const SegmentList list, int64_t slab, std::byte* staging,
                   unsigned long long* digest) {
  __shared__ unsigned long long block_sum;
  if (threadIdx.x == 0) block_sum = 0;
  __syncthreads();
  const int64_t warp = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int64_t begin = warp * slab;
  const int64_t end = min(begin + slab, list.bytes);
  uint64_t sum = 0;
  if (begin < end) {
    const int first = FindSegment(list, begin);
    const int mine = first + static_cast<int>(threadIdx.x % 32);
    const Segment segment = mine < list.count ? list.segments[mine] : Segment{nullptr, end, 0};
    const auto bits = reinterpret_cast<uint64_t>(segment.data) |
                      static_cast<uint64_t>(segment.offset | segment.bytes);
    const bool in_slab = segment.offset < end;
    const int count = __popc(__ballot_sync(kFullWarp, in_slab));
    const bool whole = __all_sync(kFullWarp, !in_slab || bits % 16 == 0);
    if (whole && count < 32) {
      const uint64_t base = reinterpret_cast<uint64_t>(segment.data) - segment.offset;
      for (int64_t pass = begin; pass < end; pass += kPass) {
        sum += CopyVectors<kGather>(segment.offset, base, count, pass, min(pass + kPass, end),
                                    staging);
      }
    } else {
      sum = CopySegments<kGather>(list, first, begin, end, staging);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kFullWarp, sum, distance);
  }
  // Additions to one address queue up: one a block, not one a warp.
  if (threadIdx.x % 32 == 0) atomicAdd(&block_sum, sum);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(digest, block_sum);
}

template <bool kGather>
void Launch(const SegmentList& list, std::byte* staging, uint64_t* digest, CUstream_st* stream) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  BATON_CHECK(list.bytes % 4 == 0 && reinterpret_cast<uintptr_t>(staging) % 16 == 0)
      << list.bytes << " bytes, staging at " << static_cast<const void*>(staging);
  if (list.bytes == 0) return;
  // Looking up segments takes longer than copying a pass: all that fits in one wave of blocks is
  // one slab a warp. Beyond that, slabs of 16 KB even out.
  constexpr int kWarps = kThreads / 32;
  const int64_t resident = int64_t{kWarps * kBlocksPerProcessor} * CurrentDevice().multiprocessors;
  const int64_t passes = (list.bytes + kPass - 1) / kPass;
  const int64_t slab = kPass * std::min<int64_t>((passes + resident - 1) / resident, 8);
  const int64_t blocks = (list.bytes + slab * kWarps - 1) / (slab * kWarps);
  SegmentsKernel<kGather><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      list, slab, staging, reinterpret_cast<unsigned long long*>(digest));
  CheckLaunch(kGather ? "GatherSegments" : "ScatterSegments");
}

}  // namespace

void GatherSegments(const SegmentList& list, std::byte* staging, uint64_t* digest,
                    CUstream_st* stream) {
  Launch<true>(list, staging, digest, stream);
}

void ScatterSegments(const SegmentList& list, const std::byte* staging, uint64_t* digest,
                     CUstream_st* stream) {
  // The kernel only reads from it in this direction.
  Launch<false>(list, const_cast<std::byte*>(staging), digest, stream);
}

}  // namespace baton::kernels::cuda
