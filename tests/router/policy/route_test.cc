#include "router/policy/route.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using baton::testing::IsOk;
using baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Worker MakeWorker(WorkerRole role, const std::string& target) {
  Worker worker;
  worker.role = role;
  worker.target = target;
  worker.id = {.address = target, .incarnation = 7};
  worker.ready = true;
  worker.semantics_hash = 1;
  worker.max_context_tokens = 1000;
  return worker;
}

// p0, p1, d0, d1, all alike.
Snapshot TwoAndTwo() {
  return {
      .workers = {MakeWorker(WorkerRole::kPrefill, "p0"), MakeWorker(WorkerRole::kPrefill, "p1"),
                  MakeWorker(WorkerRole::kDecode, "d0"), MakeWorker(WorkerRole::kDecode, "d1")},
      .prefill_is_split = true};
}

// "d0: p1 p0", or the status.
std::string Choice(const Snapshot& snapshot, const RouteQuery& query,
                   const std::string& policy = "round-robin") {
  const absl::StatusOr<Route> route = ChooseRoute(snapshot, query, **MakeScorer(policy));
  if (!route.ok()) return route.status().ToString();
  std::string text = route->decode->target + ":";
  for (const Worker* prefill : route->prefill) text += " " + prefill->target;
  return text;
}

TEST(RouteTest, RefusesAnUnknownPolicyByName) {
  EXPECT_THAT(MakeScorer("fastest"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fastest")));
}

TEST(RouteTest, RoundRobinVisitsEveryPair) {
  const Snapshot snapshot = TwoAndTwo();
  std::set<std::string> choices;
  for (uint64_t ticket = 0; ticket < 4; ++ticket) {
    choices.insert(Choice(snapshot, {.prompt_tokens = 1, .ticket = ticket}));
  }
  EXPECT_THAT(choices, ElementsAre("d0: p0 p1", "d0: p1 p0", "d1: p0 p1", "d1: p1 p0"));
}

TEST(RouteTest, ReportsThatNoDecodeWorkerIsReady) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[2].ready = snapshot.workers[3].ready = false;
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 1}),
              HasSubstr("UNAVAILABLE: no decode worker can take the request: 0 of 2 ready"));
  EXPECT_FALSE(HasRoute(snapshot));
  snapshot.workers[2].not_ready_reason = "does not answer";
  EXPECT_THAT(WhyNoRoute(snapshot), HasSubstr("no decode worker is ready: d0 (does not answer)"));
  EXPECT_EQ(WhyNoRoute(TwoAndTwo()), "");
}

TEST(RouteTest, ReportsThatNoPrefillWorkerIsReady) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].ready = snapshot.workers[1].ready = false;
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 1}), HasSubstr("no prefill worker"));
}

TEST(RouteTest, AnEmptyFleetHasNoRoute) {
  EXPECT_THAT(Choice({}, {.prompt_tokens = 1}), HasSubstr("0 of 0 ready"));
}

TEST(RouteTest, WithoutAPrefillPoolDecodeWorkersPrefillThemselves) {
  const Snapshot snapshot{{MakeWorker(WorkerRole::kDecode, "d0")}};
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}), "d0:");
  EXPECT_TRUE(HasRoute(snapshot));
}

TEST(RouteTest, PairsOnlyWorkersWithEqualSemantics) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].semantics_hash = snapshot.workers[3].semantics_hash = 2;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .ticket = 0}), "d0: p1");
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .ticket = 1}), "d1: p0");
  snapshot.workers[0].semantics_hash = 3;  // d1's only partner
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .ticket = 1}), "d0: p1");
  snapshot.workers[1].semantics_hash = 3;
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 1}),
              HasSubstr("prefill workers p0, p1 cannot work with decode workers d0, d1"));
}

TEST(RouteTest, PairsOnlyWorkersWithATransportInCommon) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].transports = {"cuda_ipc", "grpc"};
  snapshot.workers[1].transports = {"shm"};
  snapshot.workers[2].transports = {"grpc"};
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .ticket = 0}), "d0: p0");
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .ticket = 1}), "d1: p1 p0") << "does not say";
  snapshot.workers[0].ready = snapshot.workers[3].ready = false;
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 1}),
              HasSubstr("UNAVAILABLE: prefill worker p1 cannot work with decode worker d0: the "
                        "transports of p1 are shm, those of d0 are grpc"));
}

TEST(RouteTest, WhyNoneFitsIsSaidOfThoseThatCouldTakeTheRequest) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].max_context_tokens = 10;  // it would fit
  snapshot.workers[1].transports = {"shm"};
  snapshot.workers[2].transports = snapshot.workers[3].transports = {"grpc"};
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 10}),
              HasSubstr("UNAVAILABLE: prefill worker p1 cannot work with decode workers d0, d1: "
                        "the transports of p1 are shm, those of d0 are grpc"));
}

TEST(RouteTest, AvoidsWorkersThatTheRequestFailedOnByIncarnation) {
  const Snapshot snapshot = TwoAndTwo();
  const std::vector<WorkerId> failed = {{"d0", 7}, {"p0", 7}};
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .avoid = failed}), "d1: p1");
  const std::vector<WorkerId> restarted = {{"d0", 6}};
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .avoid = restarted}), "d0: p0 p1");
  const std::vector<WorkerId> unknown_incarnation = {{"d0", 0}};
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .avoid = unknown_incarnation}), "d1: p0 p1");
  const std::vector<WorkerId> all = {{"d0", 7}, {"d1", 7}};
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 1, .avoid = all}),
              HasSubstr("failed on some of them already"));
}

TEST(RouteTest, CoolingWorkersServeOnlyWhenThereAreNoOthers) {
  Snapshot snapshot = TwoAndTwo();
  const Clock::TimePoint now = Clock::TimePoint(std::chrono::seconds(100));
  snapshot.workers[2].cooling_until = now + std::chrono::seconds(1);
  snapshot.workers[0].cooling_until = now + std::chrono::seconds(1);
  for (uint64_t ticket = 0; ticket < 4; ++ticket) {
    EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .ticket = ticket, .now = now}), "d1: p1");
  }
  snapshot.workers[3].ready = false;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .now = now}), "d0: p1");
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .now = now + std::chrono::seconds(2)}),
            "d0: p0 p1");
}

TEST(RouteTest, TellsATooLongRequestFromAMissingWorker) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].max_context_tokens = snapshot.workers[1].max_context_tokens = 5000;
  snapshot.workers[3].max_context_tokens = 2000;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 999, .new_tokens = 1}), "d0: p0 p1");
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1000, .new_tokens = 1}), "d1: p0 p1");
  const std::string too_long = Choice(snapshot, {.prompt_tokens = 1999, .new_tokens = 2});
  EXPECT_THAT(too_long, HasSubstr("OUT_OF_RANGE: the longest context is 2000"));
  EXPECT_THAT(too_long, HasSubstr("1999"));
  EXPECT_EQ(LongestContext(snapshot), 2000u);
  // The worker that is large enough is there; it only is not for this request any more.
  const std::vector<WorkerId> failed = {{"d1", 7}};
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 1500, .avoid = failed}), HasSubstr("UNAVAILABLE"));
}

TEST(RouteTest, PrefillWorkersWithoutRoomForThePromptAreNotAsked) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].max_context_tokens = 500;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 499, .new_tokens = 400}), "d0: p0 p1")
      << "they compute one token only";
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 500}), "d0: p1");
  snapshot.workers[1].max_context_tokens = 600;
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 600}),
              HasSubstr("OUT_OF_RANGE: the longest prompt is 599 tokens; the request has 600"));
}

TEST(RouteTest, AWorkerThatReportsNoContextLimitTakesAnyLength) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].max_context_tokens = snapshot.workers[1].max_context_tokens = 0;
  snapshot.workers[2].max_context_tokens = 0;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1u << 30, .new_tokens = 1u << 30}), "d0: p0 p1");
  EXPECT_EQ(LongestContext(snapshot), 0u);
}

TEST(RouteTest, LeastLoadedPrefersFewerRequestsThenFreerPages) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[2].load.running_requests = 2;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}, "least-loaded").substr(0, 2), "d1");
  snapshot.workers[3].load.queued_requests = 3;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}, "least-loaded").substr(0, 2), "d0");
  snapshot.workers[3].load.queued_requests = 2;
  snapshot.workers[2].load.pages_total = snapshot.workers[3].load.pages_total = 10;
  snapshot.workers[2].load.pages_free = 1;
  snapshot.workers[3].load.pages_free = 9;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}, "least-loaded").substr(0, 2), "d1");
}

TEST(RouteTest, LeastLoadedOrdersPrefillWorkersByWaitingTokens) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[0].load.queued_tokens = 500;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}, "least-loaded"), "d0: p1 p0");
}

TEST(RouteTest, OwnWorkSinceTheLastReportCountsAsLoad) {
  Snapshot snapshot = TwoAndTwo();
  snapshot.workers[3].load.running_requests = 1;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}, "least-loaded").substr(0, 2), "d0");
  WorkLease first(snapshot.workers[2].open, 10);
  WorkLease second(snapshot.workers[2].open, 10);
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}, "least-loaded").substr(0, 2), "d1");
  first.Release();
  second.Release();
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}, "least-loaded").substr(0, 2), "d0");
}

// The pair that served the first turn serves the second, unless others have far less to do.
TEST(RouteTest, PrefixAwareReturnsToWhereAPromptIsCached) {
  Snapshot snapshot = TwoAndTwo();
  const std::unique_ptr<Scorer> scorer = *MakeScorer("prefix-aware");
  std::vector<int32_t> conversation(600, 5);
  const auto choose = [&](uint64_t ticket) {
    const RouteQuery query{.prompt_tokens = static_cast<uint32_t>(conversation.size()),
                           .prompt = conversation,
                           .ticket = ticket};
    const absl::StatusOr<Route> route = ChooseRoute(snapshot, query, *scorer);
    EXPECT_THAT(route, IsOk());
    return route->decode->target + " " + route->prefill.front()->target;
  };
  EXPECT_EQ(choose(1), "d1 p1");
  conversation.resize(700, 6);
  EXPECT_EQ(choose(2), "d1 p1");
  snapshot.workers[3].load.running_requests = 3;
  snapshot.workers[1].load.queued_tokens = 600;
  EXPECT_EQ(choose(2), "d1 p1");
  snapshot.workers[3].load.running_requests = 5;
  snapshot.workers[1].load.queued_tokens = 700;
  EXPECT_EQ(choose(2), "d0 p0");
  EXPECT_EQ(choose(2), "d0 p0") << "now they have it too";
}

TEST(RouteTest, WorkThatTheReportKnowsIsNotCountedTwice) {
  Worker worker = MakeWorker(WorkerRole::kDecode, "d");
  const WorkLease lease(worker.open, 10);
  worker.load.running_requests = 3;  // ours and two of another router
  worker.load.queued_tokens = 10;
  worker.requests_at_report = 1;
  worker.prompt_tokens_at_report = 10;
  EXPECT_EQ(worker.EstimatedRequests(), 3);
  EXPECT_EQ(worker.EstimatedQueuedTokens(), 10);
}

TEST(RouteTest, DecodeWorkersDoNotStandInForPrefillWorkersThatAreGone) {
  Snapshot snapshot{.workers = {MakeWorker(WorkerRole::kDecode, "d")}, .prefill_is_split = true};
  EXPECT_THAT(Choice(snapshot, {.prompt_tokens = 1}),
              HasSubstr("no prefill worker can take the request: 0 of 0 ready"));
  snapshot.prefill_is_split = false;
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1}), "d:");
}

TEST(RouteTest, OffersAtMostFourPrefillWorkers) {
  Snapshot snapshot{.workers = {MakeWorker(WorkerRole::kDecode, "d")}, .prefill_is_split = true};
  for (int i = 0; i < 9; ++i) {
    snapshot.workers.push_back(MakeWorker(WorkerRole::kPrefill, "p" + std::to_string(i)));
  }
  EXPECT_EQ(Choice(snapshot, {.prompt_tokens = 1, .ticket = 7}), "d: p5 p6 p7 p8");
}

}  // namespace
}  // namespace baton::router
