#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/integration/prompts.h"
#include "tests/integration/router_client.h"
#include "tests/testing/cluster.h"

// Clients speak to the router, which pairs the workers and tries again elsewhere.

namespace baton {
namespace {

using ::baton::testing::Cluster;
using ::baton::testing::ClusterOptions;
using ::baton::testing::Eventually;
using ::baton::testing::Golden;
using ::baton::testing::GoldenCaseOf;
using ::baton::testing::Greedy;
using ::baton::testing::IsOk;
using ::baton::testing::Outcome;

Outcome Ask(Cluster& cluster, const golden::GoldenCase& golden) {
  return testing::AskRouter(cluster, golden.ids, Greedy(static_cast<uint32_t>(golden.out.size())));
}

TEST(RouterTest, ConcurrentClientsGetTheReferencesAnswersFromAllWorkers) {
  ClusterOptions options;
  options.prefill = 2;
  options.decode = 2;
  options.router = true;
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  std::vector<std::pair<const golden::GoldenCase*, Outcome>> asked;
  for (const golden::GoldenCase& golden : Golden().cases) {
    if (golden.must_match && golden.ids.size() < 600) asked.emplace_back(&golden, Outcome());
  }
  std::vector<std::jthread> clients;
  for (auto& [golden, outcome] : asked) {
    clients.emplace_back([&, golden = golden, into = &outcome] { *into = Ask(*cluster, *golden); });
  }
  for (std::jthread& client : clients) client.join();
  std::map<std::string, int> served;
  for (const auto& [golden, outcome] : asked) {
    EXPECT_THAT(outcome.status, IsOk()) << golden->name;
    EXPECT_EQ(outcome.tokens, golden->out) << golden->name;
    ++served[outcome.served_by.prefill().address()];
    ++served[outcome.served_by.decode().address()];
  }
  EXPECT_EQ(served.size(), 4u) << "every worker had a part in it";
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

TEST(RouterTest, AHandOffThatFailsIsTriedAgainElsewhere) {
  ClusterOptions options;
  options.prefill = 2;
  options.router = true;
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  const golden::GoldenCase& golden = GoldenCaseOf(3001);
  Outcome outcome;
  std::jthread client([&] { outcome = Ask(*cluster, golden); });
  const auto computes = [&](int index) {
    return cluster->decode().load().cache.pages_transfer > 0 &&
           cluster->prefill(index).load().running > 0;
  };
  EXPECT_TRUE(Eventually([&] { return computes(0) || computes(1); }));
  const int victim = computes(0) ? 0 : 1;
  cluster->prefill(victim).Stop();
  client.join();
  EXPECT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.tokens, golden.out);
  EXPECT_EQ(outcome.served_by.prefill().address(), cluster->prefill(1 - victim).address());
  EXPECT_THAT(cluster->CheckIdleAndEmpty(), IsOk());
}

}  // namespace
}  // namespace baton
