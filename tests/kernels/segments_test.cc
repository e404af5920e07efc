#include "kernels/segments.h"

#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

// The digest by its formula, word by word.
uint64_t DigestOf(const std::vector<uint32_t>& words) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    uint64_t x = (i / 4 + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    sum += (std::rotl(x, static_cast<int>(16 * (i % 4))) | 1) * words[i];
  }
  return sum;
}

std::vector<uint32_t> RandomWords(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = engine();
  return words;
}

// Pieces of 0 words, single words, pages and a long run, in reverse order in memory.
struct Pieces {
  explicit Pieces(uint32_t seed) {
    const std::vector<int64_t> counts = {1, 0, 4, 3, 64, 4096, 7, 100'000, 2};
    int64_t total = 0;
    for (const int64_t count : counts) total += count;
    memory = RandomWords(total, seed);
    int64_t offset = 0;
    for (const int64_t count : counts) {
      auto* data = reinterpret_cast<std::byte*>(memory.data() + total - offset - count);
      segments.push_back({.data = data, .offset = 4 * offset, .bytes = 4 * count});
      offset += count;
    }
  }
  std::vector<uint32_t> memory;
  std::vector<Segment> segments;
};

TEST(SegmentsTest, GatherConcatenatesAndDigestsByTheFormula) {
  Pieces pieces(1);
  std::vector<uint32_t> staging(pieces.memory.size());
  const uint64_t digest =
      GatherSegments(pieces.segments, reinterpret_cast<std::byte*>(staging.data()), TestPool());
  for (const Segment& segment : pieces.segments) {
    EXPECT_EQ(std::memcmp(segment.data, staging.data() + segment.offset / 4, segment.bytes), 0);
  }
  EXPECT_EQ(digest, DigestOf(staging));
}

TEST(SegmentsTest, ScatterUndoesGatherWithTheSameDigest) {
  Pieces source(2);
  Pieces target(3);
  std::vector<uint32_t> staging(source.memory.size());
  auto* bytes = reinterpret_cast<std::byte*>(staging.data());
  const uint64_t sent = GatherSegments(source.segments, bytes, TestPool());
  EXPECT_EQ(ScatterSegments(target.segments, bytes, TestPool()), sent);
  EXPECT_EQ(target.memory, source.memory);
}

TEST(SegmentsTest, AnyChangedOrMisplacedWordChangesTheDigest) {
  const std::vector<uint32_t> words = RandomWords(64, 4);
  const uint64_t digest = DigestOf(words);
  const auto gathered = [](std::vector<uint32_t> changed) {
    std::vector<uint32_t> staging(changed.size());
    const Segment whole = {.data = reinterpret_cast<std::byte*>(changed.data()),
                           .bytes = static_cast<int64_t>(4 * changed.size())};
    return GatherSegments({&whole, 1}, reinterpret_cast<std::byte*>(staging.data()), TestPool());
  };
  EXPECT_EQ(gathered(words), digest);
  for (size_t i = 0; i < words.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      std::vector<uint32_t> changed = words;
      changed[i] ^= 1u << bit;
      EXPECT_NE(gathered(changed), digest);
    }
    std::vector<uint32_t> swapped = words;
    std::swap(swapped[i], swapped[(i + 1) % words.size()]);
    EXPECT_NE(gathered(swapped), digest);
  }
}

TEST(SegmentsTest, DigestIsAContractBetweenVersions) {
  std::vector<uint32_t> words(10);
  std::iota(words.begin(), words.end(), 1);
  EXPECT_EQ(DigestOf(words), 0x3518f622182a21ddull);
}

TEST(SegmentsTest, NothingHasDigestZero) { EXPECT_EQ(GatherSegments({}, nullptr, TestPool()), 0u); }

TEST(SegmentsDeathTest, GapBetweenSegmentsIsRefused) {
  std::vector<uint32_t> words(8);
  auto* data = reinterpret_cast<std::byte*>(words.data());
  const std::vector<Segment> segments = {{.data = data, .offset = 0, .bytes = 8},
                                         {.data = data, .offset = 12, .bytes = 4}};
  std::vector<uint32_t> staging(8);
  EXPECT_DEATH(GatherSegments(segments, reinterpret_cast<std::byte*>(staging.data()), TestPool()),
               "expected at 8");
}

}  // namespace
}  // namespace baton::kernels
