#include "engine/sampler/sampler.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kEos = 1;

SamplePoint At(int64_t position, uint32_t generated = 0) {
  return {.position = position, .generated = generated, .eos_token_id = kEos};
}

int32_t SampleAt(const std::vector<float>& logits, const SamplingParams& params, int64_t position) {
  Sampler sampler;
  return sampler.Sample(logits, params, At(position));
}

// Every token that comes up at some of the first positions.
std::set<int32_t> Support(const std::vector<float>& logits, const SamplingParams& params,
                          int positions = 2000) {
  Sampler sampler;
  std::set<int32_t> seen;
  for (int position = 0; position < positions; ++position) {
    seen.insert(sampler.Sample(logits, params, At(position)));
  }
  return seen;
}

// Logits of given probabilities.
std::vector<float> LogitsOf(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// Chi-square of `draws` samples against expected probabilities.
double ChiSquare(const std::vector<float>& logits, const SamplingParams& params,
                 const std::vector<double>& expected, int draws) {
  Sampler sampler;
  std::vector<int> counts(expected.size(), 0);
  for (int position = 0; position < draws; ++position) {
    ++counts[static_cast<size_t>(sampler.Sample(logits, params, At(position)))];
  }
  double chi_square = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double mean = expected[i] * draws;
    if (mean == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
  }
  return chi_square;
}

TEST(SamplerTest, GreedyTakesTheHighestLogitAndOfEqualOnesTheLowestId) {
  const SamplingParams greedy{.temperature = 0};
  EXPECT_EQ(SampleAt({0.5f, 2.0f, 1.0f}, greedy, 0), 1);
  EXPECT_EQ(SampleAt({0.5f, 2.0f, 2.0f}, greedy, 0), 1);
  EXPECT_EQ(SampleAt({-3.0f}, greedy, 0), 0);
  EXPECT_EQ(SampleAt({-kInfinity, -3.0f, -kInfinity}, greedy, 0), 1);
}

TEST(SamplerTest, AdjustmentsComeBeforeEverythingElse) {
  const std::vector<float> logits = {3, 2, 1, 0};
  const std::vector<kernels::LogitAdjustment> adjustments = {{.token = 0, .repetition = 3},
                                                             {.token = 3, .add = 1.5f}};  // 1, 1.5
  const auto support = [&](const SamplingParams& params) {
    Sampler sampler;
    std::set<int32_t> seen;
    for (int position = 0; position < 200; ++position) {
      seen.insert(sampler.Sample(
          logits, {.params = &params, .point = At(position), .adjustments = adjustments}));
    }
    return seen;
  };
  EXPECT_THAT(support({.temperature = 0}), ElementsAre(1));
  EXPECT_THAT(support({.temperature = 100, .top_k = 2}), ElementsAre(1, 3));
  // 1 and 2 may not come.
  EXPECT_THAT(support({.temperature = 0, .min_tokens = 1, .stop_token_ids = {2}}), ElementsAre(3));
}

TEST(SamplerTest, DependsOnSeedAndPositionAloneNotOnWhatWasSampledBefore) {
  const std::vector<float> logits(50, 0.0f);
  SamplingParams params{.seed = 7};
  Sampler used;
  std::vector<int32_t> forwards;
  for (int position = 0; position < 40; ++position) {
    forwards.push_back(used.Sample(logits, params, At(position)));
  }
  for (int position = 39; position >= 0; --position) {
    EXPECT_EQ(SampleAt(logits, params, position), forwards[static_cast<size_t>(position)]);
  }
  params.seed = 8;
  std::vector<int32_t> other_seed;
  for (int position = 0; position < 40; ++position) {
    other_seed.push_back(used.Sample(logits, params, At(position)));
  }
  EXPECT_NE(other_seed, forwards);
}

// Bounds are the 99.9 % quantiles of the distribution; the draws are the same in every run.
TEST(SamplerTest, FollowsTheSoftmax) {
  const std::vector<double> p = {0.4, 0.05, 0.25, 0.1, 0.2};
  EXPECT_LT(ChiSquare(LogitsOf(p), {.seed = 1}, p, 20000), 18.5);
}

TEST(SamplerTest, DividesLogitsByTheTemperature) {
  const std::vector<double> p = {0.4, 0.05, 0.25, 0.1, 0.2};
  std::vector<double> squared;
  for (const double x : p) squared.push_back(x * x);
  const double total = std::accumulate(squared.begin(), squared.end(), 0.0);
  for (double& x : squared) x /= total;
  EXPECT_LT(ChiSquare(LogitsOf(p), {.temperature = 0.5f, .seed = 2}, squared, 20000), 18.5);
}

TEST(SamplerTest, RenormalisesWhatTheFiltersLeave) {
  const std::vector<double> p = {0.4, 0.05, 0.25, 0.1, 0.2};
  const std::vector<double> kept = {0.4 / 0.85, 0, 0.25 / 0.85, 0, 0.2 / 0.85};
  EXPECT_LT(ChiSquare(LogitsOf(p), {.top_k = 3, .seed = 3}, kept, 20000), 13.8);
}

TEST(SamplerTest, TopKOfOneIsGreedyAtAnyTemperature) {
  EXPECT_THAT(Support({1.0f, 3.0f, 3.0f, 2.0f}, {.temperature = 5.0f, .top_k = 1}), ElementsAre(1));
}

TEST(SamplerTest, TopKAtOrAboveTheVocabularyKeepsEverything) {
  EXPECT_EQ(Support({0, 0, 0, 0}, {.top_k = 4}).size(), 4u);
  EXPECT_EQ(Support({0, 0, 0, 0}, {.top_k = 1000}).size(), 4u);
}

TEST(SamplerTest, TopKPrefersLowerIdsAmongEqualLogits) {
  EXPECT_THAT(Support({0, 0, 0, 0}, {.top_k = 2}), ElementsAre(0, 1));
}

TEST(SamplerTest, TinyTopPLeavesTheBestToken) {
  EXPECT_THAT(Support(LogitsOf({0.3, 0.4, 0.3}), {.top_p = 1e-9f}), ElementsAre(1));
}

TEST(SamplerTest, TopPKeepsTheTokenThatCrossesTheBound) {
  const std::vector<float> logits = LogitsOf({0.1, 0.5, 0.15, 0.25});
  EXPECT_THAT(Support(logits, {.top_p = 0.45f}), ElementsAre(1));
  EXPECT_THAT(Support(logits, {.top_p = 0.6f}), UnorderedElementsAre(1, 3));
  EXPECT_THAT(Support(logits, {.top_p = 0.8f}), UnorderedElementsAre(1, 2, 3));
  EXPECT_EQ(Support(logits, {.top_p = 0.95f}).size(), 4u);
}

TEST(SamplerTest, TopPCountsTheMassThatTopKLeft) {
  // Of the three best, 0.5 is 0.5 / 0.9 = 0.56 of the mass.
  const std::vector<float> logits = LogitsOf({0.1, 0.5, 0.15, 0.25});
  EXPECT_THAT(Support(logits, {.top_p = 0.55f, .top_k = 3}), ElementsAre(1));
}

TEST(SamplerTest, TopPReachesBeyondTheFirstSortedBlock) {
  const std::vector<float> uniform(300, 0.0f);
  const std::set<int32_t> seen = Support(uniform, {.top_p = 0.5f}, 3000);
  EXPECT_EQ(seen.size(), 150u);
  EXPECT_EQ(*seen.rbegin(), 149);
}

TEST(SamplerTest, MinPIsRelativeToTheBestToken) {
  const std::vector<float> logits = LogitsOf({0.1, 0.5, 0.15, 0.25});
  EXPECT_THAT(Support(logits, {.min_p = 0.4f}), UnorderedElementsAre(1, 3));
  EXPECT_THAT(Support(logits, {.min_p = 1.0f}), ElementsAre(1));
}

TEST(SamplerTest, MinPComesAfterTopP) {
  // If min_p came first, 0.5 would be two thirds of the mass and top_p = 0.6 would stop at it.
  const std::vector<float> logits = LogitsOf({0.1, 0.5, 0.15, 0.25});
  EXPECT_THAT(Support(logits, {.top_p = 0.6f, .min_p = 0.4f}), UnorderedElementsAre(1, 3));
}

TEST(SamplerTest, ExtremeTemperaturesNeitherOverflowNorDivideByZero) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_THAT(Support({-3e38f, 3e38f, 0.0f}, {.temperature = tiny}, 100), ElementsAre(1));
  EXPECT_EQ(Support({-10.0f, 10.0f, 0.0f}, {.temperature = 1e30f}).size(), 3u);
}

TEST(SamplerTest, NeverTakesAMaskedToken) {
  EXPECT_THAT(Support({-kInfinity, 0.0f, -kInfinity, 0.0f}, {}), UnorderedElementsAre(1, 3));
}

TEST(SamplerTest, TokensThatWouldEndTheSequenceWaitForMinTokens) {
  const std::vector<float> logits = {0.0f, 9.0f, 8.0f, 7.0f};
  SamplingParams params{.temperature = 0, .max_tokens = 9, .min_tokens = 2, .stop_token_ids = {2}};
  Sampler sampler;
  EXPECT_EQ(sampler.Sample(logits, params, At(10, 0)), 3);
  EXPECT_EQ(sampler.Sample(logits, params, At(11, 1)), 3);
  EXPECT_EQ(sampler.Sample(logits, params, At(12, 2)), kEos);
  params.ignore_eos = true;  // the end of sequence ends nothing, so it may come at any time
  EXPECT_EQ(sampler.Sample(logits, params, At(10, 0)), kEos);
  params.temperature = 1.0f;
  params.ignore_eos = false;
  EXPECT_THAT((std::set<int32_t>{sampler.Sample(logits, params, At(10, 0))}),
              ::testing::Each(::testing::AnyOf(0, 3)));
}

TEST(SamplerTest, MinTokensYieldsWhenEveryTokenWouldEndTheSequence) {
  const SamplingParams params{
      .temperature = 0, .max_tokens = 9, .min_tokens = 2, .stop_token_ids = {0, 1, 2}};
  EXPECT_EQ(SampleAt({1.0f, 2.0f, 3.0f}, params, 0), 2);
}

TEST(SamplerTest, StopIdsOutsideTheVocabularyHaveNoEffect) {
  const SamplingParams params{
      .temperature = 0, .max_tokens = 9, .min_tokens = 1, .stop_token_ids = {-1, 1 << 30}};
  EXPECT_EQ(SampleAt({1.0f, 0.0f, 3.0f}, params, 0), 2);
}

// In any order and more than once; at the size of the real vocabulary, where looking every id up in
// the list would take seconds a token.
TEST(SamplerTest, ManyStopIdsCostLittle) {
  constexpr int32_t kVocabulary = 129280;
  const std::vector<float> logits(kVocabulary, 0.0f);
  SamplingParams params{.temperature = 0, .max_tokens = 9, .min_tokens = 1, .ignore_eos = true};
  for (int32_t id = kVocabulary - 2; id >= 0; --id) params.stop_token_ids.push_back(id);
  params.stop_token_ids.push_back(0);
  EXPECT_EQ(SampleAt(logits, params, 0), kVocabulary - 1);
}

TEST(SamplerDeathTest, RefusesLogitsThatNoForwardPassMayProduce) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const SamplingParams greedy{.temperature = 0};
  EXPECT_DEATH(SampleAt({0.0f, nan}, greedy, 0), "NaN");
  EXPECT_DEATH(SampleAt({0.0f, kInfinity}, greedy, 0), "infinity");
  EXPECT_DEATH(SampleAt({-kInfinity, -kInfinity}, {}, 0), "no finite value");
}

}  // namespace
}  // namespace baton::engine
