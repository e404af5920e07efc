#include "common/worker_metrics.h"

#include <regex>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// Names with labels of every series, without values and without the role.
std::set<std::string> Series(const Metrics& metrics) {
  static const std::regex kSample(R"((baton_[a-z_]+)\{role="[a-z]+"([^}]*)\})");
  const std::string text = metrics.Text();
  std::set<std::string> series;
  for (std::sregex_iterator it(text.begin(), text.end(), kSample), end; it != end; ++it) {
    series.insert((*it)[1].str() + (*it)[2].str());
  }
  return series;
}

TEST(WorkerMetricsTest, BothRolesExportTheSameSeries) {
  Metrics prefill("prefill"), decode("decode");
  WorkerMetrics prefill_worker(prefill), decode_worker(decode);
  const Metrics::Reader readers[] = {
      prefill_worker.ExportOccupancy([] { return CacheOccupancy(); }),
      decode_worker.ExportOccupancy([] { return CacheOccupancy(); })};
  EXPECT_EQ(Series(prefill), Series(decode));
  EXPECT_GT(Series(prefill).size(), 100u);
}

TEST(WorkerMetricsTest, PagesAddUpToTheTotal) {
  Metrics metrics("decode");
  WorkerMetrics worker(metrics);
  const Metrics::Reader reader = worker.ExportOccupancy([] {
    return CacheOccupancy{.pages_total = 100,
                          .pages_free = 40,
                          .pages_sequences = 30,
                          .pages_prefix = 20,
                          .pages_transfer = 6,
                          .pages_quarantine = 4,
                          .slots_total = 8,
                          .slots_free = 5};
  });
  const std::string text = metrics.Text();
  for (const char* line : {"owner=\"free\",pool=\"kv\"} 40", "owner=\"sequences\",pool=\"kv\"} 30",
                           "owner=\"prefix\",pool=\"kv\"} 20", "owner=\"transfer\",pool=\"kv\"} 6",
                           "owner=\"quarantine\",pool=\"kv\"} 4",
                           "baton_kv_pages_total{role=\"decode\",pool=\"kv\"} 100",
                           "baton_kv_pages_unaccounted{role=\"decode\",pool=\"kv\"} 0",
                           "baton_state_slots{role=\"decode\",state=\"used\"} 3"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(WorkerMetricsTest, ALostPageAndAPageOwnedTwiceBothShow) {
  Metrics metrics("decode");
  WorkerMetrics worker(metrics);
  CacheOccupancy cache{.pages_total = 10, .pages_free = 9};
  const Metrics::Reader reader = worker.ExportOccupancy([&] { return cache; });
  EXPECT_THAT(metrics.Text(), HasSubstr("unaccounted{role=\"decode\",pool=\"kv\"} 1\n"));
  cache.pages_sequences = 2;
  EXPECT_THAT(metrics.Text(), HasSubstr("unaccounted{role=\"decode\",pool=\"kv\"} -1\n"));
}

TEST(WorkerMetricsTest, TransfersAreCountedByTransportAndDirection) {
  Metrics metrics("prefill");
  WorkerMetrics worker(metrics);
  worker.kv_transfer_bytes("grpc", Direction::kSent).Increment(4096);
  worker.kv_transfer_bytes("carrier pigeon", Direction::kReceived).Increment(1);
  worker.kv_transfer_duration("grpc").Observe(0.004);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("direction=\"sent\",transport=\"grpc\"} 4096\n"));
  EXPECT_THAT(text, HasSubstr("direction=\"received\",transport=\"other\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("duration_seconds_count{role=\"prefill\",transport=\"grpc\"} 1\n"));
}

TEST(WorkerMetricsTest, RequestCountsAreReadAtEachScrape) {
  Metrics metrics("prefill");
  WorkerMetrics worker(metrics);
  WorkerMetrics::RequestCounts counts{.running = 2, .waiting = 5};
  const Metrics::Reader reader = worker.ExportRequests([&] { return counts; });
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_requests_waiting{role=\"prefill\"} 5\n"));
  counts.waiting = 0;
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_requests_waiting{role=\"prefill\"} 0\n"));
}

TEST(OutcomeTest, EveryStatusCodeHasOne) {
  EXPECT_EQ(OutcomeOf(absl::OkStatus()), Outcome::kOk);
  EXPECT_EQ(OutcomeOf(absl::CancelledError("")), Outcome::kCancelled);
  EXPECT_EQ(OutcomeOf(absl::InvalidArgumentError("")), Outcome::kInvalid);
  EXPECT_EQ(OutcomeOf(absl::ResourceExhaustedError("")), Outcome::kOverload);
  EXPECT_EQ(OutcomeOf(absl::DeadlineExceededError("")), Outcome::kDeadline);
  EXPECT_EQ(OutcomeOf(absl::FailedPreconditionError("")), Outcome::kMismatch);
  EXPECT_EQ(OutcomeOf(absl::UnavailableError("")), Outcome::kUnavailable);
  EXPECT_EQ(OutcomeOf(absl::DataLossError("")), Outcome::kInternal);
}

}  // namespace
}  // namespace baton
