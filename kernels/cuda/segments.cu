#include "common/base/check.h"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/segments.h"
#include "kernels/runtime/error.h"
#include "kernels/runtime/stream.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // vectors of a lane, all loaded before the first is stored
constexpr int64_t kSlab = int64_t{16} << 10;  // staging bytes of a warp

// The last segment that starts at or before `offset`, by all lanes of a warp together.
__device__ int FindSegment(const Segment* segments, int count, int64_t offset) {
  const int lane = threadIdx.x % 32;
  int begin = 0;  // starts at or before; `end` does not
  int end = count;
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

// Copies vectors of staging vectors [first, first + count) and sums them.
__device__ uint64_t CopyVectors(const Vector16* source, Vector16* target, int64_t first,
                                int64_t count) {
  uint64_t sum = 0;
  for (int64_t begin = threadIdx.x % 32; begin < count; begin += 32 * kUnroll) {
    Vector16 values[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (begin + 32 * i < count) values[i] = LoadStreaming16(source + begin + 32 * i);
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (begin + 32 * i >= count) continue;
      Store16(target + begin + 32 * i, values[i]);
      const uint64_t factors = DigestFactors(first + begin + 32 * i);
      sum += DigestTerm(factors, 0, values[i].x) + DigestTerm(factors, 1, values[i].y) +
             DigestTerm(factors, 2, values[i].z) + DigestTerm(factors, 3, values[i].w);
    }
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

__device__ uint64_t CopyPart(const std::byte* source, std::byte* target, int64_t offset,
                             int64_t bytes) {
  const auto bits = reinterpret_cast<uint64_t>(source) | reinterpret_cast<uint64_t>(target) |
                    static_cast<uint64_t>(offset | bytes);
  if (bits % 16 == 0) {
    return CopyVectors(reinterpret_cast<const Vector16*>(source),
                       reinterpret_cast<Vector16*>(target), offset / 16, bytes / 16);
  }
  return CopyWords(reinterpret_cast<const uint32_t*>(source), reinterpret_cast<uint32_t*>(target),
                   offset / 4, bytes / 4);
}

// A warp a slab of the staging buffer, whatever segments it holds.
template <bool kGather>
__global__ void __launch_bounds__(kThreads)
    SegmentsKernel(const SegmentList list, std::byte* staging, unsigned long long* digest) {
  const int64_t warp = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int64_t begin = warp * kSlab;
  const int64_t end = min(begin + kSlab, list.bytes);
  uint64_t sum = 0;
  if (begin < end) {
    for (int i = FindSegment(list.segments, list.count, begin); i < list.count; ++i) {
      const Segment segment = list.segments[i];
      if (segment.offset >= end) break;
      const int64_t from = max(begin, segment.offset);
      const int64_t to = min(end, segment.offset + segment.bytes);
      if (from >= to) continue;
      std::byte* data = segment.data + (from - segment.offset);
      sum += kGather ? CopyPart(data, staging + from, from, to - from)
                     : CopyPart(staging + from, data, from, to - from);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kFullWarp, sum, distance);
  }
  if (threadIdx.x % 32 == 0 && sum != 0) atomicAdd(digest, sum);
}

template <bool kGather>
void Launch(const SegmentList& list, std::byte* staging, uint64_t* digest, CUstream_st* stream) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  BATON_CHECK(list.bytes % 4 == 0 && reinterpret_cast<uintptr_t>(staging) % 16 == 0)
      << list.bytes << " bytes, staging at " << static_cast<const void*>(staging);
  FillAsync(digest, 0, sizeof(*digest), stream);
  if (list.bytes == 0) return;
  constexpr int64_t kBlockBytes = kSlab * (kThreads / 32);
  const int64_t blocks = (list.bytes + kBlockBytes - 1) / kBlockBytes;
  SegmentsKernel<kGather><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      list, staging, reinterpret_cast<unsigned long long*>(digest));
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
