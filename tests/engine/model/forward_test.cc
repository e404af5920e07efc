#include "engine/model/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/model/test_model.h"

namespace baton::engine {
namespace {

constexpr int64_t kTokens = 530;  // past two pages of 256 and four HCA entries

// All logits of one prompt, computed in one call: what every other way must reproduce.
class ForwardTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokens_ = TestTokens(kTokens);
    CacheStorage cache(TestGeometry());
    expected_ = TestSequence(cache).Append(tokens_);
  }
  static std::span<const int32_t> Tokens(int64_t begin, int64_t count) {
    return std::span(tokens_).subspan(begin, count);
  }

  static std::vector<int32_t> tokens_;
  static LogitsRows expected_;
};

std::vector<int32_t> ForwardTest::tokens_;
LogitsRows ForwardTest::expected_;

TEST_F(ForwardTest, LogitsAreFiniteAndDifferByPosition) {
  ASSERT_EQ(expected_.size(), static_cast<size_t>(kTokens));
  for (const std::vector<float>& row : expected_) {
    for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
  }
  EXPECT_NE(expected_[0], expected_[37]);  // the same token, later
}

TEST_F(ForwardTest, PrefillThenDecodeEqualsPrefill) {
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  for (const int64_t n : {1,   2,   3,   4,   5,   7,   8,   63,  64,  65,  127, 128, 129,
                          131, 132, 255, 256, 257, 260, 383, 384, 385, 511, 512, 513}) {
    const std::string what = "prefill of " + std::to_string(n);
    sequence.Restart();
    ExpectEqualRows(sequence.Append(Tokens(0, n)), expected_, 0, what);
    for (int64_t i = n; i < n + 6; ++i) {
      ExpectEqualRows(sequence.Append(Tokens(i, 1)), expected_, i, what);
    }
  }
}

TEST_F(ForwardTest, ChunkSizeDoesNotMatter) {
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  for (const size_t chunk : {1, 2, 3, 5, 7, 100, 127, 128, 129, 255, 256, 257, 300, 512, 513}) {
    sequence.Restart();
    ExpectEqualRows(sequence.AppendInChunks(tokens_, chunk), expected_, 0,
                    "chunks of " + std::to_string(chunk));
  }
}

TEST_F(ForwardTest, PageSizeDoesNotMatter) {
  for (const int page_tokens : {256, 384, 1024}) {
    CacheStorage cache(TestGeometry({.page_tokens = page_tokens, .pages = 5, .slots = 1}));
    TestSequence sequence(cache);
    ExpectEqualRows(sequence.AppendInChunks(tokens_, 200), expected_, 0,
                    "pages of " + std::to_string(page_tokens));
  }
}

TEST_F(ForwardTest, RollbackRowsDoNotMatter) {
  for (const int rows : {1, 3, 64}) {
    CacheStorage cache(TestGeometry({.pages = 4, .slots = 1, .rollback_rows = rows}));
    TestSequence sequence(cache);
    ExpectEqualRows(sequence.AppendInChunks(tokens_, 150), expected_, 0,
                    "rings with " + std::to_string(rows) + " spare rows");
  }
}

// The values already lie on the grids that the packed formats store.
TEST_F(ForwardTest, PackedFormatsLoseNothingUnderReferenceNumerics) {
  using kernels::EntryFormat;
  for (const EntryFormat index : {EntryFormat::kBf16, EntryFormat::kFp4Index}) {
    CacheStorage cache(TestGeometry(
        {.pages = 4, .slots = 1, .kv_format = EntryFormat::kFp8Packed, .index_format = index}));
    TestSequence sequence(cache);
    ExpectEqualRows(sequence.AppendInChunks(tokens_, 256), expected_, 0,
                    "index format " + std::to_string(static_cast<int>(index)));
  }
}

TEST_F(ForwardTest, SequencesOfABatchDoNotSeeEachOther) {
  CacheStorage cache(TestGeometry());
  const std::vector<int32_t> other = TestTokens(300, 2);
  CacheStorage other_cache(TestGeometry());
  const LogitsRows other_expected = TestSequence(other_cache).Append(other);

  // Three decode from different places, one prefills a chunk longer than a pass.
  TestSequence a(cache, 0, {9, 2, 17, 4, 5});
  TestSequence b(cache, 1, {1, 0, 3, 8, 6});
  TestSequence c(cache, 2, {20, 21, 22, 23, 7});
  TestSequence d(cache, 3, {10, 11, 12, 13, 14});
  a.Append(Tokens(0, 127));
  b.Append(std::span(other).first(255));
  c.Append(Tokens(0, 3));
  d.Append(std::span(other).first(1));
  const std::vector<SequenceChunk> batch = {
      a.Chunk(Tokens(127, 1), 127), b.Chunk(std::span(other).subspan(255, 2), 255),
      d.Chunk(std::span(other).subspan(1, 290), 1), c.Chunk(Tokens(3, 1), 3)};
  const LogitsRows rows =
      SplitRows(TestModel().Forward(batch, cache).logits, TestModel().config().vocab_size);
  ASSERT_EQ(rows.size(), 294u);
  ExpectEqualRows({rows[0]}, expected_, 127, "a");
  ExpectEqualRows({rows[1], rows[2]}, other_expected, 255, "b");
  ExpectEqualRows({rows.begin() + 3, rows.begin() + 293}, other_expected, 1, "d");
  ExpectEqualRows({rows[293]}, expected_, 3, "c");
}

TEST_F(ForwardTest, OnlyWantedRowsGetLogits) {
  CacheStorage cache(TestGeometry());
  TestSequence a(cache, 0, {0, 1, 2, 3, 4});
  TestSequence b(cache, 1, {5, 6, 7, 8, 9});
  std::vector<SequenceChunk> batch = {a.Chunk(Tokens(0, 300), 0), b.Chunk(Tokens(0, 20), 0)};
  batch[0].first_logits_row = 299;
  batch[1].first_logits_row = 20;  // none
  const ForwardResult result = TestModel().Forward(batch, cache);
  ExpectEqualRows(SplitRows(result.logits, 1024), expected_, 299, "last row");
  EXPECT_EQ(result.logits.size(), 1024u);
  EXPECT_EQ(result.streams.size(), 320u * 4 * 256);
}

TEST_F(ForwardTest, TokensAreWhatTheSamplerMakesOfTheLogits) {
  CacheStorage cache(TestGeometry());
  const TestSequence sequence(cache);
  const SamplingParams params{.temperature = 0.9f, .seed = 3};
  std::vector<RowSampling> sampling;
  for (int64_t row = 0; row < 3; ++row) sampling.push_back({&params, {.position = 20 + row}});
  SequenceChunk chunk = sequence.Chunk(Tokens(0, 20), 0);
  chunk.first_logits_row = 17;
  const std::span<const float> logits = TestModel().Forward({&chunk, 1}, cache).logits;
  std::vector<int32_t> expected;
  Sampler sampler;
  for (size_t row = 0; row < 3; ++row) {
    expected.push_back(
        sampler.Sample(logits.subspan(row * 1024, 1024), params, sampling[row].point));
  }
  chunk.sampling = sampling;
  const ForwardResult result = TestModel().Forward({&chunk, 1}, cache);
  EXPECT_TRUE(result.logits.empty());
  EXPECT_EQ(std::vector<int32_t>(result.tokens.begin(), result.tokens.end()), expected);
}

TEST_F(ForwardTest, RowsThatAskGetTheLogSoftmaxOfTheirLogits) {
  CacheStorage cache(TestGeometry());
  const TestSequence sequence(cache);
  // Neither temperature nor filters matter to them.
  const SamplingParams params{.temperature = 1.7f, .top_k = 2, .seed = 3};
  SequenceChunk chunk = sequence.Chunk(Tokens(0, 20), 0);
  chunk.first_logits_row = 17;
  const std::span<const float> row = TestModel().Forward({&chunk, 1}, cache).logits.subspan(2048);
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit));
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });

  const std::vector<RowSampling> sampling = {{&params, {.position = 18}, /*top_logprobs=*/0},
                                             {&params, {.position = 19}},
                                             {&params, {.position = 20}, /*top_logprobs=*/4}};
  chunk.sampling = sampling;
  const ForwardResult result = TestModel().Forward({&chunk, 1}, cache);
  ASSERT_EQ(result.logprobs.size(), 2u);
  EXPECT_EQ(result.logprobs[0].chosen.token, result.tokens[0]);
  EXPECT_TRUE(result.logprobs[0].top.empty());
  const TokenLogprobs& last = result.logprobs[1];
  EXPECT_EQ(last.chosen.token, result.tokens[2]);
  EXPECT_NEAR(last.chosen.logprob, row[result.tokens[2]] - std::log(sum), 1e-6);
  ASSERT_EQ(last.top.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(last.top[i].token, order[i]);
    EXPECT_NEAR(last.top[i].logprob, row[order[i]] - std::log(sum), 1e-6);
  }
}

TEST_F(ForwardTest, RejectedRowsLeaveNoTrace) {
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  const std::vector<int32_t> draft = TestTokens(8, 99);
  for (const int64_t n : {1,   2,   3,   4,   120, 121, 122, 123, 124, 126, 127,
                          128, 129, 250, 255, 256, 380, 383, 384, 505, 511}) {
    sequence.Restart();
    sequence.Append(Tokens(0, n));
    for (const size_t rejected : {8, 1, 4}) {
      sequence.Compute(std::span(draft).first(rejected));
    }
    const std::string what = "after rejecting drafts at " + std::to_string(n);
    ExpectEqualRows(sequence.Append(Tokens(n, 3)), expected_, n, what);
    ExpectEqualRows(sequence.Append(Tokens(n + 3, 6)), expected_, n + 3, what);
  }
}

TEST_F(ForwardTest, PartlyAcceptedDraftsContinueFromTheLastGoodRow) {
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  for (int64_t n = 124; n < 133; ++n) {
    for (int64_t accepted = 1; accepted < 8; accepted += 2) {
      sequence.Restart();
      sequence.Append(Tokens(0, n));
      std::vector<int32_t> verify(Tokens(n, 8).begin(), Tokens(n, 8).end());
      for (size_t i = accepted; i < verify.size(); ++i) verify[i] = 8 + verify[i] % 100;
      const LogitsRows verified = sequence.Compute(verify);
      const std::string what = std::to_string(accepted) + " accepted at " + std::to_string(n);
      ExpectEqualRows({verified.begin(), verified.begin() + accepted}, expected_, n, what);
      sequence.Append(Tokens(n, accepted));
      ExpectEqualRows(sequence.Append(Tokens(n + accepted, 5)), expected_, n + accepted, what);
    }
  }
}

TEST_F(ForwardTest, AUsedSlotIsAsGoodAsAFreshOne) {
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  const std::vector<int32_t> longer = TestTokens(700, 5);
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 127, 130}) {
    sequence.Restart();
    sequence.Append(longer);
    sequence.Restart();
    ExpectEqualRows(sequence.AppendInChunks(Tokens(0, n), 3), expected_, 0,
                    std::to_string(n) + " tokens in a used slot");
  }
}

TEST_F(ForwardTest, CarryHoldsTheStreamsOfTheNewestPositions) {
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  sequence.AppendInChunks(Tokens(0, 290), 100);
  const SequenceChunk chunk = sequence.Chunk(Tokens(290, 20), 290);
  const ForwardResult result = TestModel().Forward({&chunk, 1}, cache);
  const kernels::RowRing<BFloat16> carry = cache.Carry(sequence.slot());
  ASSERT_EQ(carry.rows, 9);
  ASSERT_EQ(carry.width, 1024);
  for (int64_t position = 301; position < 310; ++position) {
    const std::span<const BFloat16> row = result.streams.subspan((position - 290) * 1024, 1024);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), carry.Row(position))) << position;
  }
}

TEST_F(ForwardTest, ObserverSeesEveryLayerAndSelection) {
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  std::map<int, int64_t> rows_of_layer;
  std::map<int, int64_t> selections_of_layer;
  const ForwardObserver observer{
      .on_layer =
          [&](int layer, int64_t first_row, std::span<const BFloat16> streams) {
            EXPECT_EQ(first_row, rows_of_layer[layer]);
            rows_of_layer[layer] += static_cast<int64_t>(streams.size()) / 1024;
          },
      .on_selection =
          [&](int layer, int64_t row, std::span<const int32_t> entries) {
            EXPECT_EQ(row, selections_of_layer[layer]++);
            const int64_t visible = (row + 1) / 4;
            EXPECT_EQ(std::ssize(entries), std::min<int64_t>(visible, kTestTopK));
            EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end()));
            for (const int32_t entry : entries) EXPECT_LT(entry, visible);
          },
  };
  const SequenceChunk chunk = sequence.Chunk(tokens_, 0);
  TestModel().Forward({&chunk, 1}, cache, observer);
  EXPECT_EQ(rows_of_layer.size(), 7u);
  for (const auto& [layer, rows] : rows_of_layer) EXPECT_EQ(rows, kTokens) << layer;
  EXPECT_THAT(selections_of_layer,
              ::testing::ElementsAre(::testing::Pair(2, kTokens), ::testing::Pair(4, kTokens),
                                     ::testing::Pair(6, kTokens)));
}

TEST_F(ForwardTest, AnEmptyBatchComputesNothing) {
  CacheStorage cache(TestGeometry());
  EXPECT_TRUE(TestModel().Forward({}, cache).logits.empty());
  const SequenceChunk empty{};
  EXPECT_TRUE(TestModel().Forward({&empty, 1}, cache).streams.empty());
}

TEST_F(ForwardTest, StreamsOfTheWantedRowsOnly) {
  CacheStorage cache(TestGeometry());
  const TestSequence one(cache, 0, {3, 1, 4});
  const TestSequence two(cache, 1, {5, 9, 2});
  std::vector<SequenceChunk> batch = {one.Chunk(Tokens(0, 300), 0), two.Chunk(Tokens(0, 20), 0)};
  const std::span<const BFloat16> all = TestModel().Forward(batch, cache).streams;
  std::vector<BFloat16> expected(all.begin() + 290 * 1024, all.begin() + 300 * 1024);
  expected.insert(expected.end(), all.end() - 5 * 1024, all.end());
  batch[0].first_streams_row = 290;
  batch[1].first_streams_row = 15;
  const std::span<const BFloat16> wanted = TestModel().Forward(batch, cache).streams;
  ASSERT_EQ(wanted.size(), expected.size());
  EXPECT_EQ(std::memcmp(wanted.data(), expected.data(), wanted.size_bytes()), 0);
}

TEST_F(ForwardTest, ThreadsDoNotMatter) {
  const Checkpoint checkpoint = *Checkpoint::Open(kModelDir);
  CpuModel model(checkpoint.config(), *LoadWeights(checkpoint),
                 {.index_topk = kTestTopK, .threads = 3});
  CacheStorage cache(TestGeometry());
  TestSequence sequence(cache);
  const SequenceChunk chunk = sequence.Chunk(tokens_, 0);
  ExpectEqualRows(SplitRows(model.Forward({&chunk, 1}, cache).logits, 1024), expected_, 0,
                  "three threads");
}

TEST_F(ForwardTest, ExactNumericsDifferButAgreeOnMostTokens) {
  const Checkpoint checkpoint = *Checkpoint::Open(kModelDir);
  CpuModel model(checkpoint.config(), *LoadWeights(checkpoint),
                 {.numerics = Numerics::kExact, .index_topk = kTestTopK, .threads = 2});
  CacheStorage cache(TestGeometry());
  const TestSequence sequence(cache);
  const SequenceChunk chunk = sequence.Chunk(Tokens(0, 64), 0);
  const LogitsRows rows = SplitRows(model.Forward({&chunk, 1}, cache).logits, 1024);
  int equal = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto argmax = [](const std::vector<float>& values) {
      return std::max_element(values.begin(), values.end()) - values.begin();
    };
    equal += argmax(rows[row]) == argmax(expected_[row]);
  }
  EXPECT_NE(rows.back(), expected_[63]);
  EXPECT_GE(equal, 50);  // of 64; the text is half noise, so many rows are close calls
}

}  // namespace
}  // namespace baton::engine
