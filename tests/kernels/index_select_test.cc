#include "kernels/index_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cache_entry.h"
#include "kernels/rope.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Select(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> selected(k, 12345);
  TopK(scores, selected);
  return selected;
}

// By a stable sort.
std::vector<int32_t> SortedTopK(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), k));
  std::sort(order.begin(), order.end());
  order.resize(k, -1);
  return order;
}

TEST(TopKTest, FewerScoresThanAskedForArePadded) {
  EXPECT_THAT(Select({}, 3), ElementsAre(-1, -1, -1));
  EXPECT_THAT(Select({1, 2}, 3), ElementsAre(0, 1, -1));
  EXPECT_THAT(Select({3, 1, 2}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(Select({3, 1, 2}, 0), ElementsAre());
}

TEST(TopKTest, TiesGoToTheLowestIndexAndOutputAscends) {
  EXPECT_THAT(Select({1, 5, 5, 5, 0}, 2), ElementsAre(1, 2));
  EXPECT_THAT(Select({2, 1, 2, 3}, 2), ElementsAre(0, 3));
  EXPECT_THAT(Select({-0.0f, 0.0f, -0.0f}, 2), ElementsAre(0, 1));
  EXPECT_THAT(Select(std::vector<float>(100, -7.0f), 3), ElementsAre(0, 1, 2));
}

TEST(TopKTest, NaNRanksLast) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Select({nan, -infinity, 1}, 2), ElementsAre(1, 2));
  EXPECT_THAT(Select({-nan, nan, 1}, 2), ElementsAre(0, 2));
}

TEST(TopKTest, MatchesASort) {
  for (const int64_t n : {513, 1000, 5500}) {
    std::vector<float> scores = RandomValues<float>(n, static_cast<uint32_t>(n));
    for (const int64_t k : {1, 16, 512}) EXPECT_EQ(Select(scores, k), SortedTopK(scores, k));
    // Many equal scores, of which only some are taken.
    for (float& score : scores) score = std::round(score * 2);
    for (const int64_t k : {1, 16, 512}) EXPECT_EQ(Select(scores, k), SortedTopK(scores, k));
  }
}

// Queries and keys of one sequence; row 0 sits at `start`.
struct Case {
  Case(int heads, int64_t start, int64_t rows, EntryFormat format, int64_t topk)
      : rows(rows),
        entries((start + rows) / 4),
        q(RandomValues<BFloat16>(rows * heads * kIndexDim, 1)),
        w(RandomValues<BFloat16>(rows * heads, 2)),
        selected(rows * topk, 12345),
        pages(format, kIndexDim, 64, entries) {
    for (int64_t entry = 0; entry < entries; ++entry) {
      const auto key = RandomValues<BFloat16>(kIndexDim, static_cast<uint32_t>(100 + entry));
      EncodeEntry(pages.pool, pages.table, entry, key.data());
    }
    params = {.q = View(std::as_const(q), rows, heads * kIndexDim),
              .w = View(std::as_const(w), rows, heads),
              .heads = heads,
              .start = start,
              .keys = pages.pool,
              .pages = pages.table,
              .selected = View(selected, rows, topk)};
  }

  double Score(int64_t row, int64_t entry) const {
    BFloat16 key[kIndexDim];
    DecodeEntry(pages.pool, pages.table, entry, key);
    double score = 0;
    for (int head = 0; head < params.heads; ++head) {
      double dot = 0;
      for (int i = 0; i < kIndexDim; ++i) {
        dot += static_cast<double>(
                   static_cast<float>(q[(row * params.heads + head) * kIndexDim + i])) *
               static_cast<float>(key[i]);
      }
      score += std::max(dot, 0.0) * static_cast<float>(w[row * params.heads + head]);
    }
    return score;
  }

  int64_t rows;
  int64_t entries;
  std::vector<BFloat16> q;
  std::vector<BFloat16> w;
  std::vector<int32_t> selected;
  TestPages pages;
  IndexSelectParams params;
};

TEST(IndexLogitsTest, MatchTheFormulaInEveryFormat) {
  for (const EntryFormat format :
       {EntryFormat::kBf16, EntryFormat::kFp8Index, EntryFormat::kFp4Index}) {
    for (const int heads : {4, 8, 9}) {
      Case c(heads, 150, 70, format, 1);
      std::vector<float> scores(c.rows * c.entries, 777.0f);
      IndexLogits(c.params, View(scores, c.rows, c.entries), TestPool());
      for (int64_t row = 0; row < c.rows; row += 23) {
        for (int64_t entry = 0; entry < c.entries; ++entry) {
          const float score = scores[row * c.entries + entry];
          if (entry < (150 + row + 1) / 4) {
            EXPECT_NEAR(score, c.Score(row, entry), 1e-3);
          } else {
            EXPECT_EQ(score, 777.0f);
          }
        }
      }
    }
  }
}

TEST(IndexSelectTest, TakesAllVisibleEntriesWhileTheyFit) {
  Case c(4, 0, 20, EntryFormat::kBf16, 4);
  IndexSelect({&c.params, 1}, TestPool());
  for (int64_t row = 0; row < 16; ++row) {
    std::vector<int32_t> expected((row + 1) / 4);
    std::iota(expected.begin(), expected.end(), 0);
    expected.resize(4, -1);
    EXPECT_EQ(std::vector(c.selected.begin() + row * 4, c.selected.begin() + row * 4 + 4), expected)
        << row;
  }
}

TEST(IndexSelectTest, TakesTheHighestScoresAcrossTheBoundary) {
  const int64_t topk = 16;
  Case c(8, 40, 150, EntryFormat::kBf16, topk);
  IndexSelect({&c.params, 1}, TestPool());
  std::vector<float> scores(c.rows * c.entries);
  IndexLogits(c.params, View(scores, c.rows, c.entries), TestPool());
  for (int64_t row = 0; row < c.rows; ++row) {
    const auto begin = scores.begin() + row * c.entries;
    const std::vector<float> visible(begin, begin + (40 + row + 1) / 4);
    EXPECT_EQ(std::vector(c.selected.begin() + row * topk, c.selected.begin() + (row + 1) * topk),
              SortedTopK(visible, topk))
        << row;
  }
}

TEST(IndexSelectTest, OneRowAloneSelectsWhatItSelectsInABatch) {
  const int64_t topk = 8;
  Case c(8, 100, 33, EntryFormat::kFp4Index, topk);
  IndexSelect({&c.params, 1}, TestPool());
  for (const int64_t row : {0, 17, 32}) {
    std::vector<int32_t> alone(topk);
    IndexSelectParams one = c.params;
    one.q = one.q.Rows(row, 1);
    one.w = one.w.Rows(row, 1);
    one.start += row;
    one.selected = View(alone, 1, topk);
    IndexSelect({&one, 1}, TestPool());
    EXPECT_EQ(alone,
              std::vector(c.selected.begin() + row * topk, c.selected.begin() + (row + 1) * topk));
  }
}

TEST(IndexSelectTest, SequencesShareACall) {
  IndexSelect({}, TestPool());
  Case a(8, 100, 5, EntryFormat::kBf16, 8);
  Case b(8, 200, 70, EntryFormat::kBf16, 8);
  Case empty(8, 40, 0, EntryFormat::kBf16, 8);
  IndexSelect({&a.params, 1}, TestPool());
  IndexSelect({&b.params, 1}, TestPool());
  const std::vector<int32_t> expected_a = a.selected, expected_b = b.selected;
  std::fill(a.selected.begin(), a.selected.end(), 0);
  std::fill(b.selected.begin(), b.selected.end(), 0);
  const IndexSelectParams all[] = {a.params, empty.params, b.params};
  IndexSelect(all, TestPool());
  EXPECT_EQ(a.selected, expected_a);
  EXPECT_EQ(b.selected, expected_b);
}

TEST(IndexQueryTest, RotatesThenTransformsThenQuantises) {
  const int heads = 2;
  auto q = RandomValues<BFloat16>(heads * kIndexDim, 7);
  const std::vector<BFloat16> input = q;
  std::vector<BFloat16> exact = input;
  const RopeTable table({.theta = 160000, .factor = 16});
  std::vector<float> rope(kRopeDim);
  table.Fill(99, rope.data());
  const MatrixView<const float> rope_view(rope.data(), 1, kRopeDim);
  IndexQuery({.q = View(q, 1, heads * kIndexDim), .heads = heads, .rope = rope_view}, TestPool());
  IndexQuery({.q = View(exact, 1, heads * kIndexDim),
              .heads = heads,
              .rope = rope_view,
              .numerics = Numerics::kExact},
             TestPool());
  for (int head = 0; head < heads; ++head) {
    std::vector<BFloat16> expected(input.begin() + head * kIndexDim,
                                   input.begin() + (head + 1) * kIndexDim);
    RotateRow(expected.data() + 64, rope.data());
    Hadamard128(expected.data());
    EXPECT_EQ(expected, std::vector(exact.begin() + head * kIndexDim,
                                    exact.begin() + (head + 1) * kIndexDim));
    FakeQuantFp4(expected.data(), expected.data(), kIndexDim);
    EXPECT_EQ(expected,
              std::vector(q.begin() + head * kIndexDim, q.begin() + (head + 1) * kIndexDim));
  }
}

TEST(ScaleIndexWeightsTest, ScalesByBothWidths) {
  std::vector<BFloat16> w(64, BFloat16(3.0f));
  ScaleIndexWeights(View(w, 1, 64));
  EXPECT_EQ(w[0], BFloat16(3.0f * 0.011048543456f));
}

}  // namespace
}  // namespace baton::kernels
