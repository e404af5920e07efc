#include "kernels/gemm.h"

#include <cmath>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/embedding.h"
#include "kernels/grouped_output.h"
#include "kernels/mtp.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

template <typename W>
std::vector<float> Reference(const std::vector<BFloat16>& x, const std::vector<W>& w, int64_t m,
                             int64_t n, int64_t k) {
  std::vector<float> y(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t c = 0; c < k; ++c) {
        sum = std::fma(static_cast<float>(x[i * k + c]), static_cast<float>(w[j * k + c]), sum);
      }
      y[i * n + j] = sum;
    }
  }
  return y;
}

class GemmShapeTest : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(GemmShapeTest, EqualsTheChainOfFusedMultiplyAddsBitForBit) {
  const auto [m, n, k] = GetParam();
  const auto x = RandomValues<BFloat16>(m * k, 1);
  const auto w = RandomValues<BFloat16>(n * k, 2);
  const auto w32 = RandomValues<float>(n * k, 3);
  std::vector<float> y(m * n, -1.0f);
  const PackedMatrix packed = PackedMatrix::FromRows(View(w, n, k));
  Gemm(View(x, m, k), packed, View(y, m, n), TestPool());
  EXPECT_EQ(y, Reference(x, w, m, n, k));

  std::vector<BFloat16> narrow(m * n);
  Gemm(View(x, m, k), packed, View(narrow, m, n), TestPool());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(narrow[i], BFloat16(y[i]));

  Gemm(View(x, m, k), PackedMatrix::FromRows(View(w32, n, k)), View(y, m, n), TestPool());
  EXPECT_EQ(y, Reference(x, w32, m, n, k));
}

INSTANTIATE_TEST_SUITE_P(Shapes, GemmShapeTest,
                         ::testing::Values(std::tuple{0, 5, 7}, std::tuple{1, 1, 1},
                                           std::tuple{1, 24, 1024}, std::tuple{2, 130, 33},
                                           std::tuple{5, 16, 16}, std::tuple{11, 40, 128},
                                           std::tuple{12, 32, 64}, std::tuple{13, 17, 48},
                                           std::tuple{47, 31, 20}, std::tuple{97, 300, 256},
                                           std::tuple{3, 4, 0}));

TEST(GemmTest, ARowDoesNotDependOnTheOthers) {
  const int64_t m = 61, n = 90, k = 128;
  const auto x = RandomValues<BFloat16>(m * k, 5);
  const auto w = RandomValues<BFloat16>(n * k, 6);
  const PackedMatrix packed = PackedMatrix::FromRows(View(w, n, k));
  std::vector<float> all(m * n), one(n);
  Gemm(View(x, m, k), packed, View(all, m, n), TestPool());
  for (int64_t row = 0; row < m; ++row) {
    Gemm(View(x, m, k).Rows(row, 1), packed, View(one, 1, n), TestPool());
    EXPECT_EQ(std::vector<float>(all.begin() + row * n, all.begin() + (row + 1) * n), one);
  }
}

TEST(GemmTest, WritesOnlyItsColumnsOfAStridedResult) {
  const int64_t m = 14, n = 20, k = 32, stride = 50;
  const auto x = RandomValues<BFloat16>(m * k, 7);
  const auto w = RandomValues<BFloat16>(n * k, 8);
  std::vector<float> y(m * stride, 99.0f);
  Gemm(View(x, m, k), PackedMatrix::FromRows(View(w, n, k)), View(y, m, stride).Columns(10, n),
       TestPool());
  const std::vector<float> expected = Reference(x, w, m, n, k);
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t col = 0; col < stride; ++col) {
      const bool inside = col >= 10 && col < 10 + n;
      EXPECT_EQ(y[row * stride + col], inside ? expected[row * n + col - 10] : 99.0f);
    }
  }
}

TEST(GroupedOutputTest, EachGroupOfHeadsHasItsOwnWeight) {
  const int64_t rows = 3, groups = 2, width = 64, rank = 24;
  const auto o = RandomValues<BFloat16>(rows * groups * width, 9);
  std::vector<std::vector<BFloat16>> weights;
  std::vector<PackedMatrix> packed;
  for (int64_t g = 0; g < groups; ++g) {
    weights.push_back(RandomValues<BFloat16>(rank * width, 10 + g));
    packed.push_back(PackedMatrix::FromRows(View(weights.back(), rank, width)));
  }
  std::vector<BFloat16> z(rows * groups * rank);
  GroupedOutput(View(o, rows, groups * width), packed, View(z, rows, groups * rank), TestPool());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      const auto begin = o.begin() + (row * groups + g) * width;
      const auto expected =
          Reference(std::vector<BFloat16>(begin, begin + width), weights[g], 1, rank, width);
      for (int64_t i = 0; i < rank; ++i) {
        EXPECT_EQ(z[(row * groups + g) * rank + i], BFloat16(expected[i]));
      }
    }
  }
}

TEST(EmbedTest, CopiesTheRowIntoEveryStream) {
  const auto table = RandomValues<BFloat16>(5 * 8, 1);
  const std::vector<int32_t> tokens = {4, 0, 4};
  std::vector<BFloat16> y(3 * 4 * 8);
  Embed(View(table, 5, 8), tokens, 4, View(y, 3, 32));
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 32; ++i) EXPECT_EQ(y[row * 32 + i], table[tokens[row] * 8 + i % 8]);
  }
}

TEST(MtpTest, AddsTheEmbeddingToEveryStream) {
  const auto e = RandomValues<BFloat16>(2 * 8, 1);
  const auto h = RandomValues<BFloat16>(2 * 32, 2);
  std::vector<BFloat16> x = h;
  AddEmbeddingToStreams(View(e, 2, 8), View(x, 2, 32));
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(x[i], BFloat16(static_cast<float>(e[i / 32 * 8 + i % 8]) + static_cast<float>(h[i])));
  }
}

}  // namespace
}  // namespace baton::kernels
