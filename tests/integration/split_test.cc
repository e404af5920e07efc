#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/prompts.h"
#include "tests/testing/cluster.h"

// A sequence that is handed over goes on exactly as if it had never moved.

namespace baton {
namespace {

using ::baton::testing::Cluster;
using ::baton::testing::ClusterOptions;
using ::baton::testing::Endless;
using ::baton::testing::Generation;
using ::baton::testing::Golden;
using ::baton::testing::GoldenCaseOf;
using ::baton::testing::Greedy;
using ::baton::testing::IsOk;
using ::baton::testing::Outcome;
using ::baton::testing::Text;
using ::testing::Contains;
using ::testing::Not;

std::unique_ptr<Cluster> StartCluster(const ClusterOptions& options) {
  absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(options);
  EXPECT_THAT(cluster, IsOk());
  return cluster.ok() ? *std::move(cluster) : nullptr;
}

TEST(SplitTest, GoldenPromptsAreContinuedAsByTheReference) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  int compared = 0;
  for (const golden::GoldenCase& golden : Golden().cases) {
    if (!golden.must_match || golden.ids.size() > 2200) continue;
    const Outcome split =
        cluster->Run(golden.ids, Greedy(static_cast<uint32_t>(golden.out.size())));
    ASSERT_THAT(split.status, IsOk()) << golden.name;
    EXPECT_EQ(split.tokens, golden.out) << golden.name;
    EXPECT_EQ(split.usage.prompt_tokens(), golden.ids.size());
    EXPECT_EQ(split.usage.completion_tokens(), split.tokens.size());
    EXPECT_EQ(split.served_by.prefill().address(), cluster->prefill().address());
    EXPECT_EQ(split.served_by.decode().address(), cluster->decode().address());
    EXPECT_GT(split.served_by.handoff_bytes(), 0u);
    ++compared;
  }
  EXPECT_GE(compared, 10);
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

// Long outputs cross page, window and compressor boundaries that the prompt has left open.
TEST(SplitTest, LongOutputsEqualThoseOfOneEngine) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  for (const int64_t tokens : {1, 3, 5, 127, 128, 129, 257, 700}) {
    const Outcome local = cluster->RunLocally(Text(tokens), Endless(150));
    const Outcome split = cluster->Run(Text(tokens), Endless(150));
    ASSERT_THAT(local.status, IsOk()) << tokens;
    ASSERT_THAT(split.status, IsOk()) << tokens;
    EXPECT_EQ(split.tokens, local.tokens) << tokens;
    EXPECT_EQ(split.tokens.size(), 150u);
    EXPECT_EQ(split.finish, v1::FINISH_REASON_LENGTH);
    EXPECT_FALSE(local.served_by.has_prefill());
  }
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(SplitTest, SampledOutputsEqualThoseOfOneEngine) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  for (const uint64_t seed : {1, 2, 3}) {
    SamplingParams sampling = Endless(60);
    sampling.temperature = 1;
    sampling.top_p = 0.95f;
    sampling.seed = seed;
    const Outcome local = cluster->RunLocally(Text(333), sampling);
    const Outcome split = cluster->Run(Text(333), sampling);
    ASSERT_THAT(split.status, IsOk());
    EXPECT_EQ(split.tokens, local.tokens) << "seed " << seed;
  }
}

// Biases and the repetition penalty change the first token, which the prefill worker samples;
// counts go on from it.
TEST(SplitTest, PenaltiesAndBiasesAreThoseOfOneEngine) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const int32_t first = cluster->Run(Text(333), Endless(1)).tokens.at(0);
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams sampling = Endless(60);
    sampling.temperature = temperature;
    sampling.presence_penalty = 0.5f;
    sampling.frequency_penalty = 0.25f;
    sampling.repetition_penalty = 1.1f;
    sampling.logit_bias = {{.token = first, .bias = -100}, {.token = 500, .bias = 2}};
    const Outcome local = cluster->RunLocally(Text(333), sampling);
    const Outcome split = cluster->Run(Text(333), sampling);
    ASSERT_THAT(split.status, IsOk());
    EXPECT_EQ(split.tokens, local.tokens);
    EXPECT_THAT(split.tokens, Not(Contains(first)));
  }
}

// The first token's travel with the hand-off.
TEST(SplitTest, LogprobsEqualThoseOfOneEngineWithAndWithoutDrafts) {
  std::vector<std::vector<TokenLogprobs>> all;
  for (const int drafts : {0, 2}) {
    ClusterOptions options;
    options.tune_prefill = [](int, prefill::PrefillConfig& config) {
      config.engine.draft_tokens = 0;
    };
    options.tune_decode = [&](int, decode::DecodeConfig& config) {
      config.engine.draft_tokens = drafts;
    };
    const std::unique_ptr<Cluster> cluster = StartCluster(options);
    ASSERT_NE(cluster, nullptr);
    SamplingParams sampling = Endless(40);
    sampling.temperature = 0.8f;
    sampling.seed = 3;
    sampling.top_logprobs = 4;
    const Outcome local = cluster->RunLocally(Text(150), sampling);
    const Outcome split = cluster->Run(Text(150), sampling);
    ASSERT_THAT(split.status, IsOk());
    ASSERT_EQ(split.logprobs.size(), split.tokens.size());
    for (size_t i = 0; i < split.tokens.size(); ++i) {
      EXPECT_EQ(split.logprobs[i].chosen.token, split.tokens[i]);
      EXPECT_EQ(split.logprobs[i].top.size(), 4u);
    }
    EXPECT_EQ(split.logprobs, local.logprobs);
    EXPECT_TRUE(cluster->Run(Text(150), Endless(5)).logprobs.empty());
    all.push_back(split.logprobs);
  }
  EXPECT_EQ(all[0], all[1]);
}

TEST(SplitTest, AFirstTokenThatStopsEndsTheRequestWithoutAStep) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const golden::GoldenCase& golden = GoldenCaseOf(300);
  SamplingParams stopping = Greedy(10);
  stopping.stop_token_ids = {golden.out.front()};
  const Outcome stopped = cluster->Run(golden.ids, stopping);
  EXPECT_THAT(stopped.status, IsOk());
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>{golden.out.front()});
  EXPECT_EQ(stopped.finish, v1::FINISH_REASON_STOP);

  const Outcome single = cluster->Run(golden.ids, Greedy(1));
  EXPECT_THAT(single.status, IsOk());
  EXPECT_EQ(single.tokens, std::vector<int32_t>{golden.out.front()});
  EXPECT_EQ(single.finish, v1::FINISH_REASON_LENGTH);
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

struct GeometryCase {
  const char* name;
  int prefill_page_tokens;
  int decode_page_tokens;
  const char* kv_dtype;
  const char* index_dtype;
};

class SplitGeometryTest : public ::testing::TestWithParam<GeometryCase> {};

TEST_P(SplitGeometryTest, PagesAndFormatsDoNotMatterToTheTokens) {
  const GeometryCase& geometry = GetParam();
  ClusterOptions options;
  options.tune_prefill = [&](int, prefill::PrefillConfig& config) {
    config.engine.page_tokens = geometry.prefill_page_tokens;
    config.engine.kv_cache_dtype = geometry.kv_dtype;
    config.engine.index_cache_dtype = geometry.index_dtype;
    config.engine.draft_tokens = 0;
  };
  options.tune_decode = [&](int, decode::DecodeConfig& config) {
    config.engine.page_tokens = geometry.decode_page_tokens;
    config.engine.kv_cache_dtype = geometry.kv_dtype;
    config.engine.index_cache_dtype = geometry.index_dtype;
    config.engine.draft_tokens = 3;
  };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  for (const int64_t tokens : {200, 1025}) {
    const Outcome local = cluster->RunLocally(Text(tokens), Endless(40));
    const Outcome split = cluster->Run(Text(tokens), Endless(40));
    ASSERT_THAT(split.status, IsOk()) << tokens;
    EXPECT_EQ(split.tokens, local.tokens) << tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SplitGeometryTest,
    ::testing::Values(GeometryCase{"SmallToLargePages", 128, 384, "bf16", "bf16"},
                      GeometryCase{"DefaultToSmallPages", 256, 128, "bf16", "bf16"},
                      GeometryCase{"LargeToSmallPages", 512, 128, "bf16", "bf16"},
                      GeometryCase{"Fp8KvFp8Index", 128, 256, "fp8", "fp8"},
                      GeometryCase{"Fp4Index", 256, 256, "bf16", "fp4"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(SplitTest, ConcurrentRequestsDoNotDisturbEachOther) {
  ClusterOptions options;
  options.prefill = 2;
  options.decode = 2;
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  std::vector<const golden::GoldenCase*> cases;
  std::vector<std::unique_ptr<Generation>> running;
  for (const golden::GoldenCase& golden : Golden().cases) {
    if (!golden.must_match || golden.ids.size() > 1100) continue;
    std::vector<std::string> prefill = cluster->prefill_addresses();
    if (cases.size() % 2 == 1) std::swap(prefill[0], prefill[1]);
    running.push_back(
        cluster->Generate({.prompt = golden.ids,
                           .sampling = Greedy(static_cast<uint32_t>(golden.out.size())),
                           .prefill_workers = std::move(prefill)},
                          static_cast<int>(cases.size() / 2 % 2)));
    cases.push_back(&golden);
  }
  ASSERT_GE(cases.size(), 8u);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Outcome outcome = running[i]->Wait();
    EXPECT_THAT(outcome.status, IsOk()) << cases[i]->name;
    EXPECT_EQ(outcome.tokens, cases[i]->out) << cases[i]->name;
  }
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

}  // namespace
}  // namespace baton
