#include "kernels/cuda/logprobs.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/logprobs.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr TokenLogprob kUntouched{.token = -7, .logprob = 7};

class CudaLogprobsTest : public CudaTest {
 protected:
  // [out_rows + 1, width], the last row for nobody.
  static std::vector<TokenLogprob> Compute(const std::vector<float>& logits,
                                           const std::vector<int32_t>& tokens,
                                           const std::vector<int32_t>& out_row, int64_t out_rows,
                                           int64_t width) {
    const auto rows = std::ssize(tokens);
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<int32_t> device_tokens(tokens), device_out_row(out_row);
    const DeviceArray<TokenLogprob> out(
        std::vector<TokenLogprob>((out_rows + 1) * width, kUntouched));
    Logprobs({.logits = {device_logits.get(), rows, std::ssize(logits) / rows},
              .tokens = device_tokens.get(),
              .out_row = device_out_row.get(),
              .out = {out.get(), out_rows, width}},
             TestStream().get());
    return out.Download();
  }

  // Every row asks; results go to rows in reverse.
  static void ExpectSame(const std::vector<float>& logits, int64_t rows, int64_t width) {
    const int64_t vocabulary = std::ssize(logits) / rows;
    std::vector<int32_t> tokens, out_row;
    for (int64_t row = 0; row < rows; ++row) {
      tokens.push_back(static_cast<int32_t>(row * 7919 % vocabulary));
      out_row.push_back(static_cast<int32_t>(rows - 1 - row));
    }
    const std::vector<TokenLogprob> actual = Compute(logits, tokens, out_row, rows, width);
    std::vector<TokenLogprob> expected(width);
    for (int64_t row = 0; row < rows; ++row) {
      kernels::Logprobs(std::span(logits).subspan(row * vocabulary, vocabulary), tokens[row],
                        expected);
      for (int64_t i = 0; i < width; ++i) {
        const TokenLogprob& value = actual[out_row[row] * width + i];
        ASSERT_EQ(value.token, expected[i].token) << "row " << row << ", place " << i;
        if (std::isinf(expected[i].logprob)) {
          ASSERT_EQ(value.logprob, expected[i].logprob) << "row " << row << ", place " << i;
        } else {
          // The bound of the header: sums of FP32 exp, and one rounding.
          ASSERT_NEAR(value.logprob, expected[i].logprob,
                      1e-6 + 1.2e-7 * std::abs(expected[i].logprob))
              << "row " << row << ", place " << i;
        }
      }
    }
    for (int64_t i = 0; i < width; ++i) ASSERT_EQ(actual[rows * width + i], kUntouched);
  }
};

TEST_F(CudaLogprobsTest, GivesTheHostsTokensAndValues) {
  ExpectSame(RandomValues<float>(64 * 129'280, 1, 4.0f), 64, 1 + kMaxTopLogprobs);
  ExpectSame(RandomValues<float>(50 * 4096, 2, 20.0f), 50, 1 + 5);
  ExpectSame(RandomValues<float>(9 * 1025, 3), 9, 1);
}

TEST_F(CudaLogprobsTest, SmallVocabulariesAreListedToTheEnd) {
  for (const int64_t vocabulary : {1, 2, 19, 20, 21}) {
    ExpectSame(RandomValues<float>(3 * vocabulary, 4), 3, 1 + kMaxTopLogprobs);
  }
}

TEST_F(CudaLogprobsTest, TheLikeliestMayAllBelongToOneThread) {
  std::vector<float> logits = RandomValues<float>(129'280, 5);
  for (int i = 0; i < 30; ++i) logits[17 + 1024 * i] = 50.0f + static_cast<float>(i % 7);
  ExpectSame(logits, 1, 1 + kMaxTopLogprobs);
}

TEST_F(CudaLogprobsTest, TiesFollowTheHost) {
  std::vector<float> logits(40 * 3000);
  std::mt19937 engine(6);
  for (float& logit : logits) {
    const float levels[] = {1.0f, 0.0f, -0.0f, -kInfinity};
    logit = levels[engine() % 4];
  }
  ExpectSame(logits, 40, 1 + kMaxTopLogprobs);
}

TEST_F(CudaLogprobsTest, RowsThatDoNotAskAndBrokenOnesAreLeftAlone) {
  const std::vector<float> logits = RandomValues<float>(4 * 500, 7);
  const auto out = Compute(logits, {3, 4, -2, 5}, {-1, 0, 1, 2}, 3, 2);
  EXPECT_EQ(out[0].token, 4);
  EXPECT_EQ(out[2], kUntouched);
  EXPECT_EQ(out[3], kUntouched);
  EXPECT_EQ(out[4].token, 5);
}

}  // namespace
}  // namespace baton::kernels::cuda
