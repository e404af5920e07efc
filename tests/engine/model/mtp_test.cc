#include <algorithm>
#include <string>
#include <vector>

#include "engine/model/forward.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/model/test_model.h"

namespace baton::engine {
namespace {

constexpr int64_t kTokens = 300;
constexpr int64_t kWidth = 4 * 256;
constexpr int kSlot = 0;

// Trunk streams of a prompt, and the MTP logits of all of its rows in one call.
class MtpTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokens_ = TestTokens(kTokens + 1);
    CacheStorage cache(TestGeometry());
    const TestSequence sequence(cache);
    const SequenceChunk chunk = sequence.Chunk(std::span(tokens_).first(kTokens), 0);
    const std::span<const BFloat16> streams = TestModel().Forward({&chunk, 1}, cache).streams;
    streams_.assign(streams.begin(), streams.end());
    expected_ = Run(cache, 0, kTokens);
  }

  // Row t pairs X[t] with token t + 1.
  static MtpChunk Chunk(int64_t start, int64_t rows, bool wants_logits = true) {
    return {.next_tokens = std::span(tokens_).subspan(start + 1, rows),
            .streams = std::span(streams_).subspan(start * kWidth, rows * kWidth),
            .start = start,
            .slot = kSlot,
            .wants_logits = wants_logits};
  }
  static LogitsRows Run(CacheStorage& cache, int64_t start, int64_t rows) {
    const MtpChunk chunk = Chunk(start, rows);
    return SplitRows(TestModel().ForwardMtp({&chunk, 1}, cache).logits, 1024);
  }

  static std::vector<int32_t> tokens_;
  static std::vector<BFloat16> streams_;
  static LogitsRows expected_;
};

std::vector<int32_t> MtpTest::tokens_;
std::vector<BFloat16> MtpTest::streams_;
LogitsRows MtpTest::expected_;

TEST_F(MtpTest, ChunkSizeDoesNotMatter) {
  CacheStorage cache(TestGeometry());
  for (const int64_t rows : {1, 3, 127, 128, 129, 256, 257}) {
    for (int64_t start = 0; start < kTokens; start += rows) {
      ExpectEqualRows(Run(cache, start, std::min(rows, kTokens - start)), expected_, start,
                      "chunks of " + std::to_string(rows));
    }
  }
}

TEST_F(MtpTest, RowsWithoutLogitsFillTheWindowAllTheSame) {
  CacheStorage cache(TestGeometry());
  for (const int64_t rows : {1, 5, 130, 290}) {
    const MtpChunk chunk = Chunk(0, rows, /*wants_logits=*/false);
    EXPECT_TRUE(TestModel().ForwardMtp({&chunk, 1}, cache).logits.empty());
    ExpectEqualRows(Run(cache, rows, 2), expected_, rows, std::to_string(rows) + " silent rows");
  }
}

TEST_F(MtpTest, RejectedDraftRowsLeaveNoTrace) {
  CacheStorage cache(TestGeometry());
  std::vector<BFloat16> noise(8 * kWidth, BFloat16(0.5f));
  const std::vector<int32_t> draft = TestTokens(8, 3);
  for (const int64_t n : {1, 2, 126, 127, 128, 129, 200}) {
    Run(cache, 0, n);
    const MtpChunk rejected{
        .next_tokens = draft, .streams = noise, .start = n, .slot = kSlot, .wants_logits = true};
    TestModel().ForwardMtp({&rejected, 1}, cache);
    ExpectEqualRows(Run(cache, n, 4), expected_, n, "rejected at " + std::to_string(n));
  }
}

TEST_F(MtpTest, ChunksOfABatchDoNotSeeEachOther) {
  CacheStorage cache(TestGeometry());
  MtpChunk other = Chunk(0, 20);
  other.slot = 1;
  Run(cache, 0, 150);
  const MtpChunk silent = [&] {
    MtpChunk chunk = Chunk(0, 30, /*wants_logits=*/false);
    chunk.slot = 2;
    return chunk;
  }();
  const std::vector<MtpChunk> batch = {Chunk(150, 2), silent, other};
  const LogitsRows rows = SplitRows(TestModel().ForwardMtp(batch, cache).logits, 1024);
  ASSERT_EQ(rows.size(), 22u);
  ExpectEqualRows({rows[0], rows[1]}, expected_, 150, "first");
  ExpectEqualRows({rows.begin() + 2, rows.end()}, expected_, 0, "third");
}

// The streams of a draft step may be the input of the next without being copied.
TEST_F(MtpTest, ResultsMayBeFedStraightIntoTheNextCall) {
  CacheStorage cache(TestGeometry());
  const auto draft_two = [&](bool copy) {
    Run(cache, 0, 10);
    MtpChunk first = Chunk(10, 1);
    first.wants_streams = true;
    std::span<const BFloat16> streams = TestModel().ForwardMtp({&first, 1}, cache).streams;
    const std::vector<BFloat16> copied(streams.begin(), streams.end());
    const MtpChunk second{.next_tokens = std::span(tokens_).subspan(12, 1),
                          .streams = copy ? std::span<const BFloat16>(copied) : streams,
                          .start = 11,
                          .slot = kSlot,
                          .wants_logits = true};
    return SplitRows(TestModel().ForwardMtp({&second, 1}, cache).logits, 1024);
  };
  EXPECT_EQ(draft_two(false), draft_two(true));
}

TEST_F(MtpTest, TrunkResultsMayBeFedStraightIntoIt) {
  CacheStorage cache(TestGeometry());
  const TestSequence sequence(cache);
  const SequenceChunk chunk = sequence.Chunk(std::span(tokens_).first(40), 0);
  MtpChunk mtp = Chunk(0, 40);
  mtp.streams = TestModel().Forward({&chunk, 1}, cache).streams;
  ExpectEqualRows(SplitRows(TestModel().ForwardMtp({&mtp, 1}, cache).logits, 1024), expected_, 0,
                  "streams of the trunk");
}

// The carry has X of the newest positions.
TEST_F(MtpTest, WithoutStreamsTheCarryIsRead) {
  CacheStorage cache(TestGeometry());
  const TestSequence sequence(cache);
  const SequenceChunk chunk = sequence.Chunk(std::span(tokens_).first(40), 0);
  TestModel().Forward({&chunk, 1}, cache);
  Run(cache, 0, 38);
  MtpChunk mtp = Chunk(38, 2);
  mtp.streams = {};
  ExpectEqualRows(SplitRows(TestModel().ForwardMtp({&mtp, 1}, cache).logits, 1024), expected_, 38,
                  "streams of the carry");
}

TEST_F(MtpTest, AUsedSlotIsAsGoodAsAFreshOne) {
  CacheStorage cache(TestGeometry());
  Run(cache, 0, kTokens);
  ExpectEqualRows(Run(cache, 0, 2), expected_, 0, "reused");
  ExpectEqualRows(Run(cache, 2, 5), expected_, 2, "reused");
}

}  // namespace
}  // namespace baton::engine
