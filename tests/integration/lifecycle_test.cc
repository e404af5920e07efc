#include <string>
#include <vector>

#include "common/rpc/status.h"
#include "gtest/gtest.h"
#include "tests/integration/prompts.h"
#include "tests/testing/cluster.h"

// Cancelling, running out of room, losing a peer: whatever happens, requests end with the right
// answer or a clear error, and every page comes back.

namespace baton {
namespace {

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
using ::testing::HasSubstr;

std::unique_ptr<Cluster> StartCluster(const ClusterOptions& options) {
  absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(options);
  EXPECT_THAT(cluster, IsOk());
  return cluster.ok() ? *std::move(cluster) : nullptr;
}

// After whatever a test did, the cluster serves as if nothing had happened.
void ExpectServesAndIsEmpty(Cluster& cluster) {
  const golden::GoldenCase& golden = GoldenCaseOf(257);
  const Outcome outcome = cluster.Run(golden.ids, Greedy(static_cast<uint32_t>(golden.out.size())));
  EXPECT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.tokens, golden.out);
  EXPECT_THAT(cluster.CheckIdleAndEmpty(), IsOk());
}

v1::FailureDetail DetailOf(const absl::Status& status) {
  return rpc::GetFailureDetail(status).value_or(v1::FailureDetail());
}

// --- cancellation

TEST(CancelTest, WhileQueuedForPrefill) {
  ClusterOptions options;
  options.tune_prefill = [](int, prefill::PrefillConfig& config) { config.engine.slots = 1; };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const auto first = cluster->Generate({.prompt = Text(6000),
                                        .sampling = Endless(4),
                                        .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(Eventually([&] { return cluster->prefill().load().running == 1; }));
  const auto second = cluster->Generate({.prompt = Text(300),
                                         .sampling = Endless(4),
                                         .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(Eventually([&] { return cluster->prefill().load().waiting == 1; }));
  second->Cancel();
  EXPECT_THAT(second->Wait().status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(Eventually([&] { return cluster->prefill().load().waiting == 0; }));
  first->Cancel();
  ExpectServesAndIsEmpty(*cluster);
}

TEST(CancelTest, WhileThePromptIsComputedAndLands) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const auto request = cluster->Generate({.prompt = Text(6000),
                                          .sampling = Endless(4),
                                          .prefill_workers = cluster->prefill_addresses()});
  // Granted, and some of it has been computed.
  ASSERT_TRUE(Eventually([&] {
    return cluster->decode().load().cache.pages_transfer > 0 &&
           cluster->prefill().load().waiting_tokens < 6000 &&
           cluster->prefill().load().waiting_tokens > 0;
  }));
  request->Cancel();
  EXPECT_THAT(request->Wait().status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(Eventually([&] { return cluster->prefill().load().running == 0; }));
  EXPECT_TRUE(request->Wait().tokens.empty());
  ExpectServesAndIsEmpty(*cluster);
}

TEST(CancelTest, WhileWaitingForAGrant) {
  ClusterOptions options;
  options.tune_decode = [](int, decode::DecodeConfig& config) { config.engine.slots = 1; };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const auto running = cluster->Generate({.prompt = Text(200),
                                          .sampling = Endless(4000),
                                          .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(running->WaitForTokens(1));
  const auto waiting = cluster->Generate({.prompt = Text(200),
                                          .sampling = Endless(4),
                                          .prefill_workers = cluster->prefill_addresses()});
  // Computed, but no slot to grant.
  ASSERT_TRUE(Eventually([&] { return cluster->prefill().load().cache.pages_transfer > 0; }));
  waiting->Cancel();
  EXPECT_THAT(waiting->Wait().status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(Eventually([&] { return cluster->prefill().load().running == 0; }));
  running->Cancel();
  ExpectServesAndIsEmpty(*cluster);
}

TEST(CancelTest, WhileDecoding) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const auto request = cluster->Generate({.prompt = Text(200),
                                          .sampling = Endless(4000),
                                          .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(request->WaitForTokens(5));
  request->Cancel();
  EXPECT_THAT(request->Wait().status, StatusIs(absl::StatusCode::kCancelled));
  ExpectServesAndIsEmpty(*cluster);
}

TEST(CancelTest, WhileComputedLocally) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const auto request = cluster->Generate({.prompt = Text(6000), .sampling = Endless(4)});
  ASSERT_TRUE(Eventually([&] { return cluster->decode().load().cache.pages_sequences > 0; }));
  request->Cancel();
  EXPECT_THAT(request->Wait().status, StatusIs(absl::StatusCode::kCancelled));
  ExpectServesAndIsEmpty(*cluster);
}

TEST(CancelTest, ADeadlineShorterThanThePromptFreesEverything) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const auto request = cluster->Generate({.prompt = Text(8000),
                                          .sampling = Endless(4),
                                          .prefill_workers = cluster->prefill_addresses(),
                                          .timeout = std::chrono::milliseconds(300)});
  EXPECT_THAT(request->Wait().status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  ExpectServesAndIsEmpty(*cluster);
}

// --- room

TEST(RoomTest, RequestsWaitForPagesInOrderAndAllAreServed) {
  ClusterOptions options;
  options.tune_decode = [](int, decode::DecodeConfig& config) {
    config.engine.pages = 5;  // one prompt of 512 tokens and its output at a time
    config.engine.slots = 2;
  };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const golden::GoldenCase& golden = GoldenCaseOf(512);
  std::vector<std::unique_ptr<Generation>> requests;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(cluster->Generate({.prompt = golden.ids,
                                          .sampling = Greedy(12),
                                          .prefill_workers = cluster->prefill_addresses()}));
  }
  for (const auto& request : requests) {
    const Outcome outcome = request->Wait();
    EXPECT_THAT(outcome.status, IsOk());
    EXPECT_EQ(outcome.tokens, golden.out);
  }
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(RoomTest, AFullDecodeWorkerDoesNotStrandThePrefillWorker) {
  ClusterOptions options;
  options.decode = 2;
  options.tune_prefill = [](int, prefill::PrefillConfig& config) {
    config.engine.slots = 4;
    config.max_ungranted = 50;
  };
  options.tune_decode = [](int, decode::DecodeConfig& config) { config.engine.slots = 1; };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const Generation::Request endless = {.prompt = Text(200),
                                       .sampling = Endless(7000),
                                       .prefill_workers = cluster->prefill_addresses()};
  const auto hog = cluster->Generate(endless, 0);
  ASSERT_TRUE(hog->WaitForTokens(1));
  std::vector<std::unique_ptr<Generation>> stuck;
  for (int i = 0; i < 6; ++i) stuck.push_back(cluster->Generate(endless, 0));
  ASSERT_TRUE(Eventually([&] {
    const WorkerLoad load = cluster->prefill().load();
    return load.running == 2 && load.waiting == 4;  // half of the slots, no more
  }));
  const golden::GoldenCase& golden = GoldenCaseOf(300);
  const Outcome other = cluster
                            ->Generate({.prompt = golden.ids,
                                        .sampling = Greedy(12),
                                        .prefill_workers = cluster->prefill_addresses()},
                                       1)
                            ->Wait();
  EXPECT_THAT(other.status, IsOk());
  EXPECT_EQ(other.tokens, golden.out);
  stuck.clear();
  hog->Cancel();
  ExpectServesAndIsEmpty(*cluster);
}

TEST(RoomTest, ASequenceThatCannotGrowIsComputedAgainAndSaysTheSame) {
  ClusterOptions options;
  options.tune_decode = [](int, decode::DecodeConfig& config) {
    config.engine.pages = 6;
    config.growth_tokens = 1;
  };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  // Each fits alone (5 pages), two do not.
  const Outcome alone = cluster->RunLocally(Text(100), Endless(500));
  ASSERT_THAT(alone.status, IsOk());
  std::vector<std::unique_ptr<Generation>> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(cluster->Generate({.prompt = Text(100),
                                          .sampling = Endless(500),
                                          .prefill_workers = cluster->prefill_addresses()}));
  }
  for (const auto& request : requests) {
    const Outcome outcome = request->Wait();
    EXPECT_THAT(outcome.status, IsOk());
    EXPECT_EQ(outcome.tokens, alone.tokens);
    EXPECT_EQ(outcome.usage.completion_tokens(), 500u);
  }
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(RoomTest, AFullQueueRefusesByName) {
  ClusterOptions options;
  options.tune_decode = [](int, decode::DecodeConfig& config) {
    config.engine.slots = 1;
    config.queue_limit = 1;
  };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const Generation::Request endless = {.prompt = Text(64),
                                       .sampling = Endless(7000),
                                       .prefill_workers = cluster->prefill_addresses()};
  const auto running = cluster->Generate(endless);
  ASSERT_TRUE(running->WaitForTokens(1));
  const auto waiting = cluster->Generate(endless);
  ASSERT_TRUE(Eventually([&] { return cluster->decode().load().waiting == 1; }));
  const Outcome refused = cluster->Generate(endless)->Wait();
  EXPECT_THAT(refused.status, StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("the decode queue is full")));
  EXPECT_EQ(DetailOf(refused.status).leg(), v1::FailureDetail::LEG_DECODE);
  EXPECT_EQ(DetailOf(refused.status).peer().address(), cluster->decode().address());
  waiting->Cancel();
  running->Cancel();
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(RoomTest, ASlowReaderDoesNotHoldUpOthersAndGetsEverything) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const auto slow = cluster->Generate({.prompt = Text(64), .sampling = Endless(1000)});
  const Outcome other = cluster->RunLocally(Text(64), Endless(50));
  EXPECT_THAT(other.status, IsOk());
  EXPECT_EQ(slow->Wait().tokens.size(), 1000u);
}

// --- peers

TEST(PeerTest, TheNextPrefillWorkerIsAskedWhenOneIsGone) {
  ClusterOptions options;
  options.prefill = 2;
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ExpectServesAndIsEmpty(*cluster);
  cluster->prefill(0).Stop();
  const golden::GoldenCase& golden = GoldenCaseOf(300);
  const Outcome outcome = cluster->Run(golden.ids, Greedy(12));
  EXPECT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.tokens, golden.out);
  EXPECT_EQ(outcome.served_by.prefill().address(), cluster->prefill(1).address());
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(PeerTest, WithoutALivingPrefillWorkerTheErrorNamesTheLastOne) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  cluster->prefill().Stop();
  const Outcome outcome = cluster->Run(Text(100), Greedy(4));
  EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(DetailOf(outcome.status).leg(), v1::FailureDetail::LEG_PREFILL);
  EXPECT_EQ(DetailOf(outcome.status).peer().address(), cluster->prefill().address());
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(PeerTest, ARestartedPrefillWorkerIsNotMistakenForTheOldOne) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const golden::GoldenCase& golden = GoldenCaseOf(129);
  const Outcome before = cluster->Run(golden.ids, Greedy(12));
  ASSERT_THAT(before.status, IsOk());
  ASSERT_THAT(cluster->RestartPrefill(0), IsOk());
  Outcome after;
  ASSERT_TRUE(Eventually([&] {  // the channel reconnects within a second
    after = cluster->Run(golden.ids, Greedy(12));
    return after.status.ok();
  })) << after.status;
  EXPECT_EQ(after.tokens, golden.out);
  EXPECT_EQ(after.served_by.prefill().address(), before.served_by.prefill().address());
  EXPECT_NE(after.served_by.prefill().incarnation(), before.served_by.prefill().incarnation());
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(PeerTest, APrefillWorkerThatStopsAmidAHandOffEndsItWithItsName) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const auto request = cluster->Generate({.prompt = Text(8000),
                                          .sampling = Endless(4),
                                          .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(Eventually([&] { return cluster->decode().load().cache.pages_transfer > 0; }));
  cluster->prefill().Stop();
  const Outcome outcome = request->Wait();
  EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_NE(DetailOf(outcome.status).leg(), v1::FailureDetail::LEG_DECODE);
  EXPECT_EQ(DetailOf(outcome.status).peer().address(), cluster->prefill().address());
  EXPECT_TRUE(outcome.tokens.empty());
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(PeerTest, ADecodeWorkerThatStopsLeavesNothingBehindOnThePrefillWorker) {
  ClusterOptions options;
  options.decode = 2;
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const auto request = cluster->Generate({.prompt = Text(8000),
                                          .sampling = Endless(4),
                                          .prefill_workers = cluster->prefill_addresses()},
                                         1);
  ASSERT_TRUE(Eventually([&] { return cluster->decode(1).load().cache.pages_transfer > 0; }));
  cluster->decode(1).Stop();
  EXPECT_THAT(request->Wait().status, StatusIs(absl::StatusCode::kUnavailable));
  ExpectServesAndIsEmpty(*cluster);
}

TEST(PeerTest, WorkersWhoseCachesDifferRefuseEachOtherByName) {
  ClusterOptions options;
  options.tune_prefill = [](int, prefill::PrefillConfig& config) {
    config.engine.numerics = "exact";
  };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const Outcome outcome = cluster->Run(Text(100), Greedy(4));
  EXPECT_THAT(outcome.status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("numerics")));
  EXPECT_EQ(DetailOf(outcome.status).leg(), v1::FailureDetail::LEG_PREFILL);
  EXPECT_THAT(cluster->RunLocally(Text(100), Greedy(4)).status, IsOk());
}

TEST(PeerTest, AnIncompatiblePrefillWorkerIsPassedOver) {
  ClusterOptions options;
  options.prefill = 2;
  options.tune_prefill = [](int index, prefill::PrefillConfig& config) {
    if (index == 0) config.engine.kv_cache_dtype = "fp8";
  };
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ExpectServesAndIsEmpty(*cluster);
}

TEST(PeerTest, ARequestAtFaultIsRefusedWithoutAskingAnyone) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  EXPECT_THAT(cluster->Run({0, 3, 5000}, Greedy(4)).status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("5000")));
  EXPECT_THAT(cluster->Run({}, Greedy(4)).status, StatusIs(absl::StatusCode::kInvalidArgument));
  SamplingParams bad = Greedy(4);
  bad.top_p = 2;
  EXPECT_THAT(cluster->Run(Text(10), bad).status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("top_p")));
  ExpectServesAndIsEmpty(*cluster);
}

// --- draining

TEST(DrainTest, ADrainingDecodeWorkerFinishesWhatRunsAndRefusesTheRest) {
  const std::unique_ptr<Cluster> cluster = StartCluster({});
  ASSERT_NE(cluster, nullptr);
  const auto running = cluster->Generate({.prompt = Text(200),
                                          .sampling = Endless(300),
                                          .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(running->WaitForTokens(1));
  EXPECT_FALSE(cluster->decode().Drain(std::chrono::seconds(0)));
  const Outcome refused = cluster->Run(Text(100), Greedy(4));
  EXPECT_THAT(refused.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_TRUE(cluster->decode().Drain(testing::kPatience));
  const Outcome finished = running->Wait();
  EXPECT_THAT(finished.status, IsOk());
  EXPECT_EQ(finished.tokens.size(), 300u);
}

TEST(DrainTest, ADrainingPrefillWorkerFinishesItsPromptsAndOthersTakeOver) {
  ClusterOptions options;
  options.prefill = 2;
  const std::unique_ptr<Cluster> cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const auto running = cluster->Generate({.prompt = Text(3000),
                                          .sampling = Endless(4),
                                          .prefill_workers = cluster->prefill_addresses()});
  ASSERT_TRUE(Eventually([&] { return cluster->prefill(0).load().running == 1; }));
  EXPECT_FALSE(cluster->prefill(0).Drain(std::chrono::seconds(0)));
  const Outcome other = cluster->Run(Text(100), Greedy(4));
  EXPECT_THAT(other.status, IsOk());
  EXPECT_EQ(other.served_by.prefill().address(), cluster->prefill(1).address());
  EXPECT_TRUE(cluster->prefill(0).Drain(testing::kPatience));
  EXPECT_THAT(running->Wait().status, IsOk());
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

}  // namespace
}  // namespace baton
