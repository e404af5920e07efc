#include "kernels/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cache_entry.h"
#include "kernels/numeric.h"
#include "kernels/window_kv.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

constexpr int kDim = 512;
constexpr float kScale = 0.04419417382415922f;

// A whole sequence: queries and window rows of every token, compressed entries behind.
class Sequence {
 public:
  Sequence(int heads, int64_t tokens, int ratio, EntryFormat format)
      : heads_(heads),
        tokens_(tokens),
        ratio_(ratio),
        q_(RandomValues<BFloat16>(tokens * heads * kDim, 1, 0.5f)),
        kv_(RandomValues<BFloat16>(tokens * kDim, 2)),
        sinks_(RandomValues<float>(heads, 3)),
        pages_(format, kDim, 2, ratio > 0 ? tokens / ratio : 0) {
    for (int64_t entry = 0; ratio > 0 && entry < tokens / ratio; ++entry) {
      auto values = RandomValues<BFloat16>(kDim, static_cast<uint32_t>(50 + entry));
      FakeQuantFp8(values.data(), values.data(), kDim - 64, 64);
      EncodeEntry(pages_.pool, pages_.table, entry, values.data());
    }
  }

  // selection: k per row, or empty for all visible entries.
  std::vector<BFloat16> Attend(int64_t start, int64_t rows, int window,
                               const std::vector<int32_t>& selection, int64_t k) const {
    const int ring_rows = window + 3;
    std::vector<BFloat16> memory(ring_rows * kDim, BFloat16(std::nanf("")));
    const RowRing<BFloat16> ring = {memory.data(), ring_rows, kDim};
    WriteRows(View(kv_, tokens_, kDim).Rows(0, start), 0, ring);
    std::vector<BFloat16> out(rows * heads_ * kDim);
    SparseAttentionParams params = {.q = View(q_, tokens_, heads_ * kDim).Rows(start, rows),
                                    .heads = heads_,
                                    .sinks = sinks_,
                                    .scale = kScale,
                                    .start = start,
                                    .window = window,
                                    .chunk = View(kv_, tokens_, kDim).Rows(start, rows),
                                    .ring = ring,
                                    .ratio = ratio_,
                                    .pool = pages_.pool,
                                    .pages = pages_.table,
                                    .out = View(out, rows, heads_ * kDim)};
    if (k > 0) params.selected = View(selection, rows, k);
    SparseAttention({&params, 1}, TestPool());
    return out;
  }

  std::vector<double> Reference(int64_t position, int window, const std::vector<int64_t>& entries,
                                int head) const {
    std::vector<std::vector<float>> keys;
    for (int64_t p = std::max<int64_t>(0, position - window + 1); p <= position; ++p) {
      keys.emplace_back();
      for (int i = 0; i < kDim; ++i) keys.back().push_back(static_cast<float>(kv_[p * kDim + i]));
    }
    for (const int64_t entry : entries) {
      std::vector<BFloat16> values(kDim);
      DecodeEntry(pages_.pool, pages_.table, entry, values.data());
      keys.push_back(Floats(values));
    }
    const BFloat16* q = q_.data() + (position * heads_ + head) * kDim;
    std::vector<double> scores;
    for (const auto& key : keys) {
      double dot = 0;
      for (int i = 0; i < kDim; ++i) dot += static_cast<double>(static_cast<float>(q[i])) * key[i];
      scores.push_back(dot * kScale);
    }
    const double m = *std::max_element(scores.begin(), scores.end());
    double denominator = std::exp(sinks_[head] - m);
    std::vector<double> o(kDim);
    for (size_t e = 0; e < keys.size(); ++e) {
      const double p = std::exp(scores[e] - m);
      denominator += p;
      for (int i = 0; i < kDim; ++i) {
        o[i] += RoundToBf16(static_cast<float>(p)) * static_cast<double>(keys[e][i]);
      }
    }
    for (double& value : o) value /= denominator;
    return o;
  }

  void ExpectRow(const std::vector<BFloat16>& out, int64_t row, int64_t position, int window,
                 const std::vector<int64_t>& entries) const {
    for (int head = 0; head < heads_; ++head) {
      const std::vector<double> expected = Reference(position, window, entries, head);
      for (int i = 0; i < kDim; ++i) {
        // BF16 output, and a P near the middle between two BF16 values may round the other way.
        EXPECT_NEAR(static_cast<float>(out[(row * heads_ + head) * kDim + i]), expected[i],
                    std::fabs(expected[i]) / 200 + 2e-3)
            << "position " << position << ", head " << head << ", channel " << i;
      }
    }
  }

 private:
  int heads_;
  int64_t tokens_;
  int ratio_;
  std::vector<BFloat16> q_;
  std::vector<BFloat16> kv_;
  std::vector<float> sinks_;
  TestPages pages_;
};

std::vector<int64_t> Range(int64_t count) {
  std::vector<int64_t> range(count);
  for (int64_t i = 0; i < count; ++i) range[i] = i;
  return range;
}

TEST(SparseAttentionTest, WindowOnlyMatchesTheFormula) {
  for (const int heads : {1, 4, 6}) {
    const Sequence sequence(heads, 40, 0, EntryFormat::kBf16);
    const std::vector<BFloat16> out = sequence.Attend(0, 40, 16, {}, 0);
    for (const int64_t position : {0, 1, 14, 15, 16, 17, 39}) {
      sequence.ExpectRow(out, position, position, 16, {});
    }
  }
}

TEST(SparseAttentionTest, AllVisibleEntriesAreAttendedWithoutASelection) {
  for (const EntryFormat format : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    const Sequence sequence(4, 43, 4, format);
    const std::vector<BFloat16> out = sequence.Attend(0, 43, 16, {}, 0);
    for (const int64_t position : {0, 2, 3, 4, 7, 41, 42}) {
      sequence.ExpectRow(out, position, position, 16, Range((position + 1) / 4));
    }
  }
}

TEST(SparseAttentionTest, ASelectionEndsAtItsFirstPadding) {
  for (const EntryFormat format : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    const Sequence sequence(4, 43, 4, format);
    const std::vector<int32_t> selection = {-1, -1, -1, 0, 3, 9, 5, -1, -1};
    const std::vector<BFloat16> out = sequence.Attend(40, 3, 16, selection, 3);
    sequence.ExpectRow(out, 0, 40, 16, {});
    sequence.ExpectRow(out, 1, 41, 16, {0, 3, 9});
    sequence.ExpectRow(out, 2, 42, 16, {5});
  }
}

TEST(SparseAttentionTest, AnyChunkingGivesTheSameBits) {
  for (const EntryFormat format : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    const Sequence sequence(4, 60, 4, format);
    const std::vector<BFloat16> whole = sequence.Attend(0, 60, 16, {}, 0);
    for (const int64_t chunk : {1, 7, 16, 33}) {
      std::vector<BFloat16> joined;
      for (int64_t start = 0; start < 60; start += chunk) {
        const auto part = sequence.Attend(start, std::min(chunk, 60 - start), 16, {}, 0);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, whole) << chunk;
    }
  }
}

TEST(SparseAttentionTest, SequencesShareACall) {
  SparseAttention({}, TestPool());
  const auto q = RandomValues<BFloat16>(20 * kDim, 1);
  const auto kv = RandomValues<BFloat16>(20 * kDim, 2);
  const std::vector<float> sinks = {0.3f};
  std::vector<BFloat16> joint(20 * kDim), alone(20 * kDim);
  const auto params = [&](int64_t first, int64_t rows, std::vector<BFloat16>& out) {
    return SparseAttentionParams{.q = View(q, 20, kDim).Rows(first, rows),
                                 .heads = 1,
                                 .sinks = sinks,
                                 .scale = kScale,
                                 .window = 6,
                                 .chunk = View(kv, 20, kDim).Rows(first, rows),
                                 .out = View(out, 20, kDim).Rows(first, rows)};
  };
  const SparseAttentionParams both[] = {params(0, 1, joint), params(1, 19, joint)};
  SparseAttention(both, TestPool());
  for (const SparseAttentionParams& one : {params(0, 1, alone), params(1, 19, alone)}) {
    SparseAttention({&one, 1}, TestPool());
  }
  EXPECT_EQ(joint, alone);
}

TEST(SparseAttentionTest, AnOverwhelmingSinkLeavesNothing) {
  const auto q = RandomValues<BFloat16>(kDim, 1);
  const auto kv = RandomValues<BFloat16>(kDim, 2);
  std::vector<BFloat16> out(kDim);
  const std::vector<float> sinks = {1e9f};
  const SparseAttentionParams params = {.q = View(q, 1, kDim),
                                        .heads = 1,
                                        .sinks = sinks,
                                        .scale = kScale,
                                        .chunk = View(kv, 1, kDim),
                                        .out = View(out, 1, kDim)};
  SparseAttention({&params, 1}, TestPool());
  for (const BFloat16 value : out) EXPECT_EQ(static_cast<float>(value), 0.0f);
}

TEST(SparseAttentionTest, ALoneTokenWithoutSinkIsItsOwnValue) {
  const auto q = RandomValues<BFloat16>(kDim, 1);
  const auto kv = RandomValues<BFloat16>(kDim, 2);
  std::vector<BFloat16> out(kDim);
  const std::vector<float> sinks = {-1e9f};
  const SparseAttentionParams params = {.q = View(q, 1, kDim),
                                        .heads = 1,
                                        .sinks = sinks,
                                        .scale = kScale,
                                        .chunk = View(kv, 1, kDim),
                                        .out = View(out, 1, kDim)};
  SparseAttention({&params, 1}, TestPool());
  EXPECT_EQ(out, kv);
}

}  // namespace
}  // namespace baton::kernels
