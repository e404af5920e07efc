#include "kernels/cuda/sampler.h"

#include <limits>

#include "engine/sampler/sampler.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kEos = 1;

std::vector<int32_t> RunSample(const std::vector<float>& logits, const std::vector<SampleRow>& rows,
                               const std::vector<int32_t>& banned) {
  const auto count = static_cast<int64_t>(rows.size());
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<SampleRow> device_rows(rows);
  const DeviceArray<int32_t> device_banned(banned);
  DeviceArray<int32_t> tokens(count);
  Sample({.logits = {device_logits.get(), count, static_cast<int64_t>(logits.size()) / count},
          .rows = device_rows.get(),
          .banned = device_banned.get(),
          .tokens = tokens.get()},
         TestStream().get());
  return tokens.Download();
}

class SamplerTest : public CudaTest {
 protected:
  // The host's sampler on the same rows.
  void ExpectSame(const std::vector<float>& logits, const std::vector<SampleRow>& rows) {
    const size_t vocabulary = logits.size() / rows.size();
    const std::vector<int32_t> tokens = RunSample(logits, rows, {kEos, 7});
    engine::Sampler sampler;
    int different = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const SampleRow& row = rows[i];
      engine::SamplingParams params{.temperature = row.temperature,
                                    .top_p = row.top_p,
                                    .top_k = row.top_k,
                                    .min_p = row.min_p,
                                    .seed = row.seed,
                                    .max_tokens = 9,
                                    .min_tokens = row.banned_count > 0 ? 5u : 0u};
      if (row.banned_count > 1) params.stop_token_ids = {7};
      const int32_t expected =
          sampler.Sample(std::span(logits).subspan(i * vocabulary, vocabulary), params,
                         {.position = row.position, .generated = 0, .eos_token_id = kEos});
      different += tokens[i] != expected ? 1 : 0;
      if (tokens[i] != expected && different < 5) {
        ADD_FAILURE() << "row " << i << ": " << tokens[i] << ", expected " << expected
                      << "; temperature " << row.temperature << ", top_k " << row.top_k
                      << ", top_p " << row.top_p << ", min_p " << row.min_p;
      }
    }
    EXPECT_EQ(different, 0);
  }

  static std::vector<SampleRow> Mixture(int count) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < count; ++i) {
      rows.push_back({.temperature = i % 7 == 0 ? 0.0f : 0.3f + 0.3f * (i % 5),
                      .top_p = i % 3 == 0 ? 1.0f : 0.2f + 0.1f * (i % 8),
                      .min_p = i % 4 == 1 ? 0.02f : 0.0f,
                      .top_k = i % 5 == 2 ? 1 + i % 60 : 0,
                      .seed = 0x123456789abcdefull * (i + 1),
                      .position = 100 + 3 * i,
                      .banned_count = i % 11 == 0 ? 1 + i % 2 : 0});
    }
    return rows;
  }
};

TEST_F(SamplerTest, ChoosesTheHostsTokens) {
  ExpectSame(RandomValues<float>(400 * 1024, 1, 4.0f), Mixture(400));
}

TEST_F(SamplerTest, ChoosesTheHostsTokensFromAFullVocabulary) {
  ExpectSame(RandomValues<float>(24 * 129280, 2, 3.0f), Mixture(24));
}

TEST_F(SamplerTest, TiesAndMasksFollowTheHost) {
  std::vector<float> logits(200 * 64);
  std::mt19937 engine(3);
  for (float& logit : logits) {  // four levels, one of them -infinity, and both zeros
    const float levels[] = {1.0f, 0.0f, -0.0f, -kInfinity};
    logit = levels[engine() % 4];
  }
  ExpectSame(logits, Mixture(200));
}

TEST_F(SamplerTest, BannedTokensYieldOnlyWhenNothingElseIsLeft) {
  std::vector<float> logits(2 * 16, -kInfinity);
  logits[kEos] = 5;
  logits[7] = 4;
  logits[16 + kEos] = 5;
  logits[16 + 9] = -30;
  const std::vector<SampleRow> rows(2, {.temperature = 0, .banned_count = 2});
  EXPECT_EQ(RunSample(logits, rows, {kEos, 7}), (std::vector<int32_t>{kEos, 9}));
}

TEST_F(SamplerTest, BrokenLogitsAreReported) {
  std::vector<float> logits = RandomValues<float>(4 * 100, 4);
  logits[50] = std::numeric_limits<float>::quiet_NaN();
  logits[100 + 99] = kInfinity;
  std::fill(logits.begin() + 200, logits.begin() + 300, -kInfinity);
  const auto tokens = RunSample(logits, std::vector<SampleRow>(4), {});
  EXPECT_EQ(tokens[0], kBrokenLogits);
  EXPECT_EQ(tokens[1], kBrokenLogits);
  EXPECT_EQ(tokens[2], kBrokenLogits);
  EXPECT_GE(tokens[3], 0);
}

TEST_F(SamplerTest, GreedyRowsTakeTheLowestOfEquals) {
  for (const int64_t vocabulary : {1, 33, 1024, 129280}) {
    std::vector<float> logits = RandomValues<float>(3 * vocabulary, 5);
    logits[vocabulary - 1] = logits[vocabulary / 2] = 100;
    const auto actual = RunSample(logits, std::vector<SampleRow>(3, {.temperature = 0}), {});
    for (int row = 0; row < 3; ++row) {
      const auto first = logits.begin() + row * vocabulary;
      EXPECT_EQ(actual[row], std::max_element(first, first + vocabulary) - first);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
