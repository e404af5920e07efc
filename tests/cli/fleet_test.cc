#include "cli/top/fleet.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "cli/top/fleet_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using baton::testing::IsOk;
using baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

MetricsText Metrics(const std::string& text) {
  const auto metrics = MetricsText::Parse(text);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  return metrics.ok() ? *metrics : MetricsText();
}

TEST(MetricsTextTest, SamplesAreSummedOverTheLabelsThatAreNotAskedFor) {
  const MetricsText metrics = Metrics(
      "# HELP a What it is.\n# TYPE a counter\n"
      "a{x=\"1\",y=\"q\\\"\\\\\\n\"} 2\na{x=\"1\",y=\"b\"} 3 1700000000\na{x=\"2\"} 10\nb 7\n");
  EXPECT_EQ(metrics.Sum("a"), 15);
  EXPECT_EQ(metrics.Sum("a", {{"x", "1"}}), 5);
  EXPECT_EQ(metrics.Sum("a", {{"y", "q\"\\\n"}}), 2);
  EXPECT_EQ(metrics.Sum("b"), 7);
  EXPECT_EQ(metrics.Sum("c"), 0);
}

TEST(MetricsTextTest, ALineThatIsNoSampleIsNamed) {
  for (const char* line : {"a{x=\"1\" 2", "a", "a x", "{} 1"}) {
    EXPECT_THAT(MetricsText::Parse(line),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(line)));
  }
}

TEST(HistogramTest, QuantilesAreLinearWithinABucket) {
  const Histogram histogram({{1, 10}, {2, 20}, {INFINITY, 20}});
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.5), 1);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.75), 1.5);
  EXPECT_DOUBLE_EQ(histogram.Quantile(1), 2);
  EXPECT_TRUE(std::isnan(Histogram().Quantile(0.5)));
  EXPECT_DOUBLE_EQ(Histogram({{1, 0}, {INFINITY, 4}}).Quantile(0.5), 1)
      << "the highest bound known";
}

TEST(HistogramTest, DifferencesAreWhatCameInBetweenAndARestartBeginsAnew) {
  const Histogram before({{1, 10}, {2, 10}, {INFINITY, 10}});
  const Histogram now({{1, 10}, {2, 14}, {INFINITY, 14}});
  EXPECT_EQ(now.Since(before).count(), 4);
  EXPECT_DOUBLE_EQ(now.Since(before).Quantile(0.5), 1.5);
  EXPECT_EQ(before.Since(now).count(), 10);
}

std::string Router(int ok, int failed, int tokens) {
  return absl::StrCat(
      "baton_build_info{role=\"router\",version=\"0\"} 1\n"
      "baton_requests_total{role=\"router\",endpoint=\"completions\",outcome=\"ok\"} ",
      ok, "\nbaton_requests_total{role=\"router\",endpoint=\"completions\",outcome=\"internal\"} ",
      failed,
      "\nbaton_requests_total{role=\"router\",endpoint=\"health\",outcome=\"ok\"} 99\n"
      "baton_requests_running{role=\"router\"} 3\n"
      "baton_generation_tokens_total{role=\"router\"} ",
      tokens, "\nbaton_time_to_first_token_seconds_bucket{role=\"router\",le=\"0.1\"} ", ok,
      "\nbaton_time_to_first_token_seconds_bucket{role=\"router\",le=\"+Inf\"} ", ok, "\n");
}

std::string Decode(int tokens, int bytes) {
  return absl::StrCat(
      "baton_build_info{role=\"decode\",version=\"0\"} 1\n"
      "baton_generation_tokens_total{role=\"decode\"} ",
      tokens,
      "\nbaton_kv_pages_total{role=\"decode\",pool=\"kv\"} 100\n"
      "baton_kv_pages{role=\"decode\",owner=\"free\",pool=\"kv\"} 60\n"
      "baton_kv_pages{role=\"decode\",owner=\"prefix\",pool=\"kv\"} 10\n"
      "baton_kv_transfer_bytes_total{role=\"decode\",direction=\"received\",transport=\"shm\"} ",
      bytes, "\n");
}

TEST(FleetTest, RatesComeFromTwoReadingsAndGaugesFromTheLast) {
  const std::chrono::steady_clock::time_point start;
  Reading before{.time = start};
  before.by_address["r"] = Metrics(Router(10, 0, 100));
  before.by_address["d"] = Metrics(Decode(50, 1000));
  Reading now{.time = start + std::chrono::seconds(2)};
  now.by_address["r"] = Metrics(Router(30, 4, 300));
  now.by_address["d"] = Metrics(Decode(250, 9000));
  now.errors["p"] = "p: connecting: refused";
  now.worker_at["d"] = {.address = "decode:7020"};

  const FleetFigures fleet = Figures(&before, &before, now);
  EXPECT_DOUBLE_EQ(fleet.router.requests_per_s, 12);
  EXPECT_DOUBLE_EQ(fleet.router.failures_per_s, 2);
  EXPECT_DOUBLE_EQ(fleet.router.requests, 34) << "questions about health are none";
  EXPECT_DOUBLE_EQ(fleet.router.running, 3);
  EXPECT_DOUBLE_EQ(fleet.router.generation_tokens_per_s, 100);
  EXPECT_DOUBLE_EQ(fleet.router.ttft.count, 20);
  EXPECT_DOUBLE_EQ(fleet.router.ttft.p50, 0.05);
  ASSERT_EQ(fleet.workers.size(), 2u);
  EXPECT_EQ(fleet.workers[0].role, "decode");
  EXPECT_EQ(fleet.workers[0].address, "decode:7020") << "as routers know it";
  EXPECT_EQ(fleet.workers[1].address, "p") << "no router does";
  EXPECT_DOUBLE_EQ(fleet.workers[0].tokens_per_s, 100);
  EXPECT_DOUBLE_EQ(fleet.workers[0].handoff_bytes_per_s, 4000);
  EXPECT_DOUBLE_EQ(fleet.workers[0].pages_used, 30);
  EXPECT_EQ(fleet.workers[1].error, "p: connecting: refused");

  EXPECT_THAT(FleetText(fleet, false), HasSubstr("p: connecting: refused"));
  const auto json = nlohmann::json::parse(FleetJson(fleet));
  EXPECT_EQ(json["workers"][0]["pages_total"], 100);
  EXPECT_EQ(json["workers"][0]["address"], "decode:7020");
  EXPECT_EQ(json["workers"][0]["metrics_address"], "d");
  EXPECT_TRUE(json["itl"]["p50_ms"].is_null()) << "no samples";
}

TEST(FleetTest, AProcessThatStartedAnewHasNoNegativeRates) {
  Reading before{.time = {}};
  before.by_address["d"] = Metrics(Decode(50, 1000));
  Reading now{.time = before.time + std::chrono::seconds(1)};
  now.by_address["d"] = Metrics(Decode(5, 10));
  EXPECT_DOUBLE_EQ(Figures(nullptr, &before, now).workers[0].tokens_per_s, 0);
  EXPECT_DOUBLE_EQ(Figures(nullptr, nullptr, now).workers[0].tokens_per_s, 0);
}

TEST(FleetTest, WorkersOfWhomNoneAnsweredAreAnErrorThatSaysWhy) {
  Reading now;
  now.by_address["r"] = Metrics(Router(10, 0, 100));
  EXPECT_THAT(AnyWorkerAnswered(Figures(nullptr, nullptr, now)), IsOk()) << "there is none";
  now.errors["p"] = "p: refused";
  EXPECT_THAT(AnyWorkerAnswered(Figures(nullptr, nullptr, now)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("p: refused")));
  now.by_address["d"] = Metrics(Decode(50, 1000));
  EXPECT_THAT(AnyWorkerAnswered(Figures(nullptr, nullptr, now)), IsOk());
}

TEST(FleetTest, AWorkerIsShownByItsNameAndByItsAddressWhereOthersShareIt) {
  Reading now;
  for (const char* metrics : {"m1", "m2", "m3"}) now.by_address[metrics] = Metrics(Decode(1, 1));
  now.worker_at["m1"] = {.address = "a:1", .name = "decode-0"};
  now.worker_at["m2"] = {.address = "b:1", .name = "same"};
  now.worker_at["m3"] = {.address = "c:1", .name = "same"};
  const FleetFigures fleet = Figures(nullptr, nullptr, now);
  EXPECT_THAT(FleetText(fleet, false), AllOf(HasSubstr(" decode-0 "), Not(HasSubstr("a:1")),
                                             HasSubstr(" same b:1 "), HasSubstr(" same c:1 ")));
  const auto json = nlohmann::json::parse(FleetJson(fleet));
  EXPECT_EQ(json["workers"][0]["name"], "decode-0");
  EXPECT_EQ(json["workers"][0]["address"], "a:1");
}

}  // namespace
}  // namespace baton::cli
