#include "kernels/compressor.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/window_kv.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

constexpr int kDim = 32;

// Projection rows of a whole sequence, and pooling straight from the definition.
class Sequence {
 public:
  Sequence(int ratio, int64_t tokens)
      : ratio_(ratio),
        width_(kDim * (ratio == kCsaRatio ? 4 : 2)),
        tokens_(tokens),
        rows_(RandomValues<float>(tokens * width_, 1, 2.0f)) {}

  double Pooled(int64_t entry, int channel) const {
    const bool overlapping = ratio_ == kCsaRatio;
    std::vector<double> c, g;
    const auto add = [&](int64_t token, int part) {
      if (token < 0) return;
      const float* row = rows_.data() + token * width_;
      c.push_back(row[part * kDim + channel]);
      g.push_back(row[width_ / 2 + part * kDim + channel]);
    };
    if (overlapping) {
      for (int64_t i = 4 * entry - 4; i < 4 * entry; ++i) add(i, 0);
    }
    for (int64_t i = ratio_ * entry; i < ratio_ * (entry + 1); ++i) add(i, overlapping ? 1 : 0);
    double total = 0, sum = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      total += std::exp(g[i]);
      sum += std::exp(g[i]) * c[i];
    }
    return sum / total;
  }

  // Runs the tokens in chunks through the op, the ring in between.
  std::vector<BFloat16> PoolInChunks(int64_t chunk_tokens) const {
    const int ring_rows = (ratio_ == kCsaRatio ? 8 : 128) + 3;
    std::vector<float> memory(ring_rows * width_, std::nanf(""));
    const RowRing<float> ring = {memory.data(), ring_rows, width_};
    std::vector<BFloat16> all(tokens_ / ratio_ * kDim);
    for (int64_t start = 0; start < tokens_; start += chunk_tokens) {
      const int64_t count = std::min(chunk_tokens, tokens_ - start);
      const int64_t first = start / ratio_;
      const int64_t entries = (start + count) / ratio_ - first;
      const MatrixView<const float> chunk = View(rows_, tokens_, width_).Rows(start, count);
      PoolEntries({.ratio = ratio_,
                   .head_dim = kDim,
                   .first_entry = first,
                   .chunk_start = start,
                   .chunk = chunk,
                   .ring = ring,
                   .pooled = {all.data() + first * kDim, entries, kDim}},
                  TestPool());
      WriteRows(chunk, start, ring);
    }
    return all;
  }

 private:
  int ratio_;
  int width_;
  int64_t tokens_;
  std::vector<float> rows_;
};

TEST(PoolEntriesTest, CsaPoolsTheOverlappingWindows) {
  const Sequence sequence(kCsaRatio, 43);
  const std::vector<BFloat16> pooled = sequence.PoolInChunks(43);
  ASSERT_EQ(pooled.size(), 10u * kDim);
  for (int64_t entry = 0; entry < 10; ++entry) {
    for (int channel = 0; channel < kDim; ++channel) {
      const double expected = sequence.Pooled(entry, channel);
      EXPECT_NEAR(static_cast<float>(pooled[entry * kDim + channel]), expected,
                  std::fabs(expected) / 250 + 1e-5);
    }
  }
}

TEST(PoolEntriesTest, HcaPoolsThePlainWindows) {
  const Sequence sequence(kHcaRatio, 300);
  const std::vector<BFloat16> pooled = sequence.PoolInChunks(300);
  ASSERT_EQ(pooled.size(), 2u * kDim);
  for (int64_t entry = 0; entry < 2; ++entry) {
    for (int channel = 0; channel < kDim; ++channel) {
      const double expected = sequence.Pooled(entry, channel);
      EXPECT_NEAR(static_cast<float>(pooled[entry * kDim + channel]), expected,
                  std::fabs(expected) / 250 + 1e-5);
    }
  }
}

TEST(PoolEntriesTest, AnyChunkingGivesTheSameBits) {
  const Sequence csa(kCsaRatio, 43);
  for (const int64_t chunk : {1, 2, 3, 4, 5, 11}) {
    EXPECT_EQ(csa.PoolInChunks(chunk), csa.PoolInChunks(43)) << chunk;
  }
  const Sequence hca(kHcaRatio, 300);
  for (const int64_t chunk : {1, 50, 127, 128, 129}) {
    EXPECT_EQ(hca.PoolInChunks(chunk), hca.PoolInChunks(300)) << chunk;
  }
}

TEST(AddPositionBiasTest, AddsTheRowOfThePositionToTheGateAlone) {
  std::vector<float> rows(3 * 4, 1.0f);
  const std::vector<float> ape = {10, 11, 20, 21, 30, 31, 40, 41};
  AddPositionBias(View(rows, 3, 4), View(ape, 4, 2), 7);
  EXPECT_EQ(rows, (std::vector<float>{1, 1, 41, 42, 1, 1, 11, 12, 1, 1, 21, 22}));
}

}  // namespace
}  // namespace baton::kernels
