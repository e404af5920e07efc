#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvtransfer/handoff_records.h"
#include "tests/integration/prompts.h"
#include "tests/integration/router_client.h"
#include "tests/testing/cluster.h"

// The second turn of a conversation computes and moves what is new, says what it would have said
// without a cache, and whatever befalls it every page is accounted for.

namespace baton {
namespace {

using ::baton::testing::AskRouter;
using ::baton::testing::Cluster;
using ::baton::testing::ClusterOptions;
using ::baton::testing::Endless;
using ::baton::testing::Eventually;
using ::baton::testing::Generation;
using ::baton::testing::GoldenCaseOf;
using ::baton::testing::Greedy;
using ::baton::testing::IsOk;
using ::baton::testing::Outcome;
using ::baton::testing::StatusIs;
using ::baton::testing::Text;

constexpr int64_t kPage = 128;  // tokens

ClusterOptions Caching() {
  ClusterOptions options;
  options.tune_prefill = [](int, prefill::PrefillConfig& config) {
    config.engine.prefix_cache = 100;
  };
  options.tune_decode = [](int, decode::DecodeConfig& config) { config.engine.prefix_cache = 100; };
  return options;
}

std::vector<int32_t> Followed(std::vector<int32_t> tokens, const std::vector<int32_t>& by) {
  tokens.insert(tokens.end(), by.begin(), by.end());
  return tokens;
}

CacheLayout Layout() {
  engine::EngineOptions options;
  options.model_dir = BATON_SOURCE_DIR "/models/needle-17m";
  absl::StatusOr<std::unique_ptr<engine::Engine>> engine = engine::Engine::Create(options);
  EXPECT_THAT(engine, IsOk());
  return (*engine)->geometry().layout();
}

// Of a series whose only label is the role.
int64_t Metric(const Metrics& metrics, const std::string& name) {
  const std::string text = metrics.Text();
  const size_t series = text.find("\n" + name + "{role=");
  EXPECT_NE(series, std::string::npos) << name;
  if (series == std::string::npos) return -1;
  return std::stoll(text.substr(text.find("} ", series) + 2));
}

TEST(PrefixCacheTest, ASecondTurnComputesAndMovesWhatIsNew) {
  ClusterOptions options = Caching();
  options.prefill = 2;
  options.decode = 2;
  options.router = true;
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  const std::vector<int32_t> first_prompt = Text(4500);
  const auto timed = [&](const std::vector<int32_t>& prompt) {
    const auto start = std::chrono::steady_clock::now();
    Outcome outcome = AskRouter(*cluster, prompt, Endless(12));
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    std::printf("%zu tokens: %u cached, %llu bytes handed over, prefill %llu us, %.0f ms in all\n",
                prompt.size(), outcome.usage.cached_tokens(),
                static_cast<unsigned long long>(outcome.served_by.handoff_bytes()),
                static_cast<unsigned long long>(outcome.served_by.prefill_us()), taken.count());
    return outcome;
  };
  const Outcome first = timed(first_prompt);
  ASSERT_THAT(first.status, IsOk());
  EXPECT_EQ(first.usage.cached_tokens(), 0u);
  const CacheLayout layout = Layout();
  EXPECT_EQ(first.served_by.handoff_bytes(), HandoffBytes(layout, 4500));

  const std::vector<int32_t> question = {3, 40, 41, 42, 43, 44, 45, 46, 47, 48, 4};
  const std::vector<int32_t> prompt =
      Followed(Followed(first_prompt, first.tokens), Followed(Text(60), question));
  const Outcome second = timed(prompt);
  ASSERT_THAT(second.status, IsOk());
  EXPECT_EQ(second.served_by.decode().address(), first.served_by.decode().address());
  EXPECT_EQ(second.served_by.prefill().address(), first.served_by.prefill().address());
  EXPECT_EQ(second.usage.cached_tokens(), 4500u);
  // The decode worker has the answer too, but for its last token, and the state there.
  const int64_t held = 4500 + 12 - 1;
  EXPECT_EQ(second.served_by.handoff_bytes(),
            kvtransfer::HandoffBytes(layout, {.entries = held, .state = held}, std::ssize(prompt)));
  // What is computed and moved is the new turn: no more than its tokens' records of every stream.
  int64_t token_bytes = 0;
  for (const StreamLayout& stream : layout.streams) {
    token_bytes += int64_t{stream.layers} * stream.record_bytes;
  }
  EXPECT_LE(static_cast<int64_t>(second.served_by.handoff_bytes()),
            (std::ssize(prompt) - held) * token_bytes);
  EXPECT_LT(second.served_by.prefill_us() * 4, first.served_by.prefill_us());

  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> without, Cluster::Start({}));
  EXPECT_EQ(without->Run(prompt, Endless(12)).tokens, second.tokens);
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

// However long a turn is, the state that the decode worker kept at the end of the one before makes
// up what is left of it in window and open groups.
TEST(PrefixCacheTest, EveryTurnMovesWhatIsNewOfTheStateAndSaysTheSame) {
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(Caching()));
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> without, Cluster::Start({}));
  const CacheLayout layout = Layout();
  std::vector<int32_t> prompt = Text(300);
  int64_t held = 0;
  for (const int question : {1, 2, 5, 60, 126, 127, 140}) {
    const Outcome outcome = cluster->Run(prompt, Endless(6));
    ASSERT_THAT(outcome.status, IsOk());
    EXPECT_EQ(
        outcome.served_by.handoff_bytes(),
        kvtransfer::HandoffBytes(layout, {.entries = held, .state = held}, std::ssize(prompt)))
        << prompt.size() << " tokens, " << held << " held";
    EXPECT_EQ(without->Run(prompt, Endless(6)).tokens, outcome.tokens);
    held = std::ssize(prompt) + 6 - 1;
    prompt = Followed(Followed(prompt, outcome.tokens), Text(question));
  }
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(PrefixCacheTest, AQuestionLaterInTheSameTextFindsThePagesBeforeIt) {
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(Caching()));
  const golden::GoldenCase& golden = GoldenCaseOf(1024);
  for (const uint32_t cached : {0, 7 * 128, 7 * 128}) {
    const Outcome outcome = cluster->Run(golden.ids, Greedy(12));
    ASSERT_THAT(outcome.status, IsOk());
    EXPECT_EQ(outcome.tokens, golden.out);
    EXPECT_EQ(outcome.usage.cached_tokens(), cached);
  }
  const Metrics& decode = cluster->decode().metrics();
  EXPECT_EQ(Metric(decode, "baton_prefix_cache_hits_total"), 2);
  EXPECT_EQ(Metric(decode, "baton_prefix_cache_misses_total"), 1);
  const Metrics& prefill = cluster->prefill().metrics();
  EXPECT_EQ(Metric(prefill, "baton_prefix_cached_tokens_total"), 2 * 7 * 128);
  EXPECT_EQ(Metric(prefill, "baton_prompt_tokens_total"), 3 * 1024);
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(PrefixCacheTest, AShortRemainderIsComputedWhereItIsDecoded) {
  ClusterOptions options = Caching();
  options.tune_decode = [](int, decode::DecodeConfig& config) {
    config.engine.prefix_cache = 100;
    config.local_prefill_tokens = 20;
  };
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  const Outcome first = cluster->Run(Text(700), Endless(30));
  ASSERT_THAT(first.status, IsOk());
  EXPECT_TRUE(first.served_by.has_prefill());
  std::vector<int32_t> prompt = Followed(Followed(Text(700), first.tokens), Text(19));
  const Outcome second = cluster->Run(prompt, Endless(30));
  ASSERT_THAT(second.status, IsOk());
  EXPECT_FALSE(second.served_by.has_prefill());
  EXPECT_EQ(second.served_by.handoff_bytes(), 0u);
  EXPECT_EQ(second.usage.cached_tokens(), 729u);
  prompt = Followed(Followed(prompt, second.tokens), Text(20));
  const Outcome third = cluster->Run(prompt, Endless(30));
  EXPECT_TRUE(third.served_by.has_prefill()) << "a token too many";

  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> without, Cluster::Start({}));
  EXPECT_EQ(without->RunLocally(prompt, Endless(30)).tokens, third.tokens);
  EXPECT_EQ(without->RunLocally(Followed(Followed(Text(700), first.tokens), Text(19)), Endless(30))
                .tokens,
            second.tokens);
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

// Preempted sequences share a prompt, and come back through the cache: with what they had counted.
TEST(PrefixCacheTest, SequencesThatShareGiveWayAndSayTheSame) {
  ClusterOptions options = Caching();
  options.tune_decode = [](int, decode::DecodeConfig& config) {
    config.engine.prefix_cache = 100;
    config.engine.pages = 7;
    config.growth_tokens = 1;
  };
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  SamplingParams sampling = Endless(400);
  sampling.frequency_penalty = 0.1f;
  const Outcome alone = cluster->RunLocally(Text(300), sampling);
  ASSERT_THAT(alone.status, IsOk());
  std::vector<std::unique_ptr<Generation>> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(cluster->Generate({.prompt = Text(300),
                                          .sampling = sampling,
                                          .prefill_workers = cluster->prefill_addresses()}));
  }
  for (const auto& request : requests) {
    const Outcome outcome = request->Wait();
    EXPECT_THAT(outcome.status, IsOk());
    EXPECT_EQ(outcome.tokens, alone.tokens);
  }
  EXPECT_GT(Metric(cluster->decode().metrics(), "baton_prefix_cache_evictions_total"), 0);
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

// Ends the second turn when `condition` has come about; afterwards a third is as it should be.
void EndSecondTurn(const std::function<bool(Cluster&)>& condition,
                   const std::function<void(Cluster&, Generation&)>& end) {
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(Caching()));
  const Outcome first = cluster->Run(Text(1000), Endless(8));
  ASSERT_THAT(first.status, IsOk());
  const std::vector<int32_t> prompt = Followed(Text(1000), Followed(first.tokens, Text(3000)));
  const auto second = cluster->Generate({.prompt = prompt,
                                         .sampling = Endless(2000),
                                         .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(Eventually([&] { return condition(*cluster); }));
  end(*cluster, *second);
  EXPECT_FALSE(second->Wait().status.ok());
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
  const std::vector<int32_t> again(prompt.begin(), prompt.begin() + 1100);
  const Outcome third = cluster->RunLocally(again, Endless(8));
  ASSERT_THAT(third.status, IsOk());
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> without, Cluster::Start({}));
  EXPECT_EQ(without->RunLocally(again, Endless(8)).tokens, third.tokens);
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

bool Landing(Cluster& cluster) {
  return cluster.decode().load().cache.pages_transfer > 0 && cluster.prefill().load().running > 0;
}

TEST(PrefixCacheTest, ACancelWhileTheRestLandsLeavesWhatWasShared) {
  EndSecondTurn(Landing, [](Cluster&, Generation& second) { second.Cancel(); });
}

TEST(PrefixCacheTest, ADeathWhileTheRestLandsLeavesWhatWasShared) {
  EndSecondTurn(Landing, [](Cluster& cluster, Generation&) { cluster.prefill().Stop(); });
}

TEST(PrefixCacheTest, ACancelBeforeTheGrantPinsNothing) {
  ClusterOptions options = Caching();
  options.tune_decode = [](int, decode::DecodeConfig& config) {
    config.engine.prefix_cache = 100;
    config.engine.slots = 1;
  };
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  const Outcome first = cluster->Run(Text(600), Endless(8));
  ASSERT_THAT(first.status, IsOk());
  const auto hog = cluster->Generate({.prompt = Text(64), .sampling = Endless(4000)});
  ASSERT_TRUE(hog->WaitForTokens(1));
  const auto second =
      cluster->Generate({.prompt = Followed(Text(600), Followed(first.tokens, Text(100))),
                         .sampling = Endless(8),
                         .prefill_workers = cluster->prefill_addresses()});
  // Computed from the cache, and nobody to grant it.
  ASSERT_TRUE(Eventually([&] { return cluster->prefill().load().cache.pages_transfer > 0; }));
  EXPECT_EQ(cluster->decode().load().cache.pages_transfer, 0);
  EXPECT_GE(cluster->decode().load().cache.pages_prefix, 4);
  second->Cancel();
  EXPECT_THAT(second->Wait().status, StatusIs(absl::StatusCode::kCancelled));
  hog->Cancel();
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(PrefixCacheTest, ACancelWhileDecodingLeavesWhatWasShared) {
  EndSecondTurn(
      [](Cluster& cluster) {
        const CacheOccupancy cache = cluster.decode().load().cache;
        return cache.pages_sequences > 0;
      },
      [](Cluster&, Generation& second) { second.Cancel(); });
}

}  // namespace
}  // namespace baton
