#include "kernels/segments.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "common/base/check.h"

namespace baton::kernels {

namespace {

constexpr int64_t kWord = 4;
constexpr int64_t kBlock = int64_t{64} << 10;  // staging bytes a thread takes at a time

uint32_t LoadWord(const std::byte* source) {
  uint32_t word = 0;
  std::memcpy(&word, source, sizeof(word));
  return word;
}

// Copies and sums `bytes` that lie at `offset` of the staging buffer.
uint64_t Copy(const std::byte* source, std::byte* target, int64_t offset, int64_t bytes) {
  std::memcpy(target, source, bytes);
  uint64_t sum = 0;
  int64_t done = 0;
  while (done < bytes) {
    const int64_t word = (offset + done) / kWord;
    const uint64_t factors = DigestFactors(word / 4);
    for (int lane = static_cast<int>(word % 4); lane < 4 && done < bytes; ++lane) {
      sum += DigestTerm(factors, lane, LoadWord(target + done));
      done += kWord;
    }
  }
  return sum;
}

void CheckSegments(std::span<const Segment> segments) {
  int64_t end = 0;
  for (const Segment& segment : segments) {
    BATON_CHECK(segment.offset == end && segment.bytes >= 0 && segment.bytes % kWord == 0)
        << "segment of " << segment.bytes << " bytes at " << segment.offset << ", expected at "
        << end;
    end += segment.bytes;
  }
}

// Calls body(segment, begin, end) for the parts of segments within blocks of the staging buffer.
template <typename Body>
uint64_t ForEachPart(std::span<const Segment> segments, ThreadPool& pool, Body&& body) {
  CheckSegments(segments);
  if (segments.empty()) return 0;
  const int64_t total = segments.back().offset + segments.back().bytes;
  std::atomic<uint64_t> digest = 0;
  pool.For(total / kWord, kBlock / kWord, [&](int64_t first_word, int64_t end_word) {
    const int64_t begin = first_word * kWord;
    const int64_t end = end_word * kWord;
    auto segment = std::upper_bound(
        segments.begin(), segments.end(), begin,
        [](int64_t offset, const Segment& other) { return offset < other.offset; });
    uint64_t sum = 0;
    for (--segment; segment != segments.end() && segment->offset < end; ++segment) {
      const int64_t from = std::max(begin, segment->offset);
      const int64_t to = std::min(end, segment->offset + segment->bytes);
      if (from < to) sum += body(*segment, from, to);
    }
    digest.fetch_add(sum, std::memory_order_relaxed);
  });
  return digest;
}

}  // namespace

uint64_t GatherSegments(std::span<const Segment> segments, std::byte* staging, ThreadPool& pool) {
  return ForEachPart(segments, pool, [&](const Segment& segment, int64_t begin, int64_t end) {
    return Copy(segment.data + begin - segment.offset, staging + begin, begin, end - begin);
  });
}

uint64_t ScatterSegments(std::span<const Segment> segments, const std::byte* staging,
                         ThreadPool& pool) {
  return ForEachPart(segments, pool, [&](const Segment& segment, int64_t begin, int64_t end) {
    return Copy(staging + begin, segment.data + begin - segment.offset, begin, end - begin);
  });
}

}  // namespace baton::kernels
