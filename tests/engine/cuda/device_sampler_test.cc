#include "engine/cuda/device_sampler.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/logprobs.h"
#include "tests/kernels/cuda/support.h"

namespace baton::engine::cuda {
namespace {

using kernels::LogitAdjustment;
using kernels::cuda::DeviceArray;
using kernels::cuda::TestStream;

// Rows of all kinds: adjusted or not, asking for log-probabilities or not.
struct SampledCase {
  int64_t rows = 0;
  int64_t vocabulary = 0;
  int64_t stride = 1;  // every stride-th token is adjusted

  std::vector<std::vector<LogitAdjustment>> Adjustments() const {
    std::vector<std::vector<LogitAdjustment>> all(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      if (row % 3 == 2) continue;
      for (int64_t token = row; token < vocabulary; token += stride) {
        all[static_cast<size_t>(row)].push_back(
            {.token = static_cast<int32_t>(token),
             .repetition = token % 2 == 0 ? 1.0f : 1.25f,
             .add = static_cast<float>((token * 7919 + row) % 200) / 10 - 10});
      }
    }
    return all;
  }
};

void ExpectTheHosts(const SampledCase& shape) {
  const std::vector<float> logits =
      kernels::RandomValues<float>(shape.rows * shape.vocabulary, 11, 4.0f);
  const auto adjustments = shape.Adjustments();
  const SamplingParams greedy{.temperature = 0};
  const SamplingParams random{.temperature = 0.9f, .top_p = 0.95f, .top_k = 50, .seed = 3};
  std::vector<RowSampling> sampling;
  for (int64_t row = 0; row < shape.rows; ++row) {
    RowSampling& how = sampling.emplace_back();
    how.params = row % 2 == 0 ? &greedy : &random;
    how.point.position = 100 + row;
    if (row % 2 == 0) how.top_logprobs = 4;
    how.adjustments = adjustments[static_cast<size_t>(row)];
  }

  const DeviceArray<float> device_logits(logits);
  const int64_t bytes = DeviceSampler::Bytes(shape.rows);
  DeviceSampler sampler(*kernels::DeviceBuffer::Allocate(bytes),
                        *kernels::PinnedBuffer::Allocate(bytes));
  SampledRows result;
  result.Begin(sampling);
  sampler.Sample({device_logits.get(), shape.rows, shape.vocabulary}, sampling, result,
                 TestStream().get());
  TestStream().Synchronize();

  Sampler host;
  const std::vector<TokenLogprobs> logprobs = result.LogprobsOf(sampling);
  auto next = logprobs.begin();
  for (size_t row = 0; row < sampling.size(); ++row) {
    const auto values = std::span(logits).subspan(row * static_cast<size_t>(shape.vocabulary),
                                                  static_cast<size_t>(shape.vocabulary));
    const int32_t token = host.Sample(values, sampling[row]);
    EXPECT_EQ(result.tokens.values()[row], token) << "row " << row;
    if (!sampling[row].top_logprobs) continue;
    std::vector<TokenLogprob> expected(5);
    kernels::Logprobs(values, token, expected);
    EXPECT_NEAR(next->chosen.logprob, expected[0].logprob, 1e-5) << "row " << row;
    for (size_t i = 0; i < next->top.size(); ++i) {
      EXPECT_EQ(next->top[i].token, expected[i + 1].token) << "row " << row << ", place " << i;
    }
    ++next;
  }
  EXPECT_TRUE(next == logprobs.end());
}

TEST(DeviceSamplerTest, AdjustedRowsGetTheHostsTokensAndLogprobsOfTheirLogitsAsTheyWere) {
  ExpectTheHosts({.rows = 40, .vocabulary = 1024, .stride = 5});
  ExpectTheHosts({.rows = 7, .vocabulary = 129'280, .stride = 1000});
}

// Each row has as many adjustments as there is room for.
TEST(DeviceSamplerTest, WhatDoesNotFitOneLaunchComesInSeveral) {
  ExpectTheHosts({.rows = 5, .vocabulary = 129'280, .stride = 1});
}

}  // namespace
}  // namespace baton::engine::cuda
