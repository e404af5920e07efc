#include "common/metrics.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"

namespace baton {

enum class Color { kRed, kGreen };
constexpr auto LabelValues(Color) { return std::to_array<const char*>({"red", "green"}); }

namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection to a port of this machine; -1 without one.
int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// What a port of this machine answers.
std::string Ask(int port, const std::string& request) {
  const int fd = Connect(port);
  std::string reply;
  if (fd >= 0) {
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[4096];
    ssize_t size = 0;
    while ((size = read(fd, buffer, sizeof(buffer))) > 0) {
      reply.append(buffer, static_cast<size_t>(size));
    }
  }
  close(fd);
  return reply;
}

std::string Scrape(int port) { return Ask(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); }

int Count(const std::string& text, const std::string& line) {
  int count = 0;
  for (absl::string_view candidate : absl::StrSplit(text, '\n')) {
    count += candidate == line ? 1 : 0;
  }
  return count;
}

TEST(MetricsTest, EverySeriesNamesTheRole) {
  Metrics metrics("decode");
  metrics.AddCounter("baton_x_total", "X.").Increment(3);
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_x_total{role=\"decode\"} 3\n"));
}

TEST(MetricsTest, BuildInfoAndProcessStartAreThere) {
  Metrics metrics("router");
  EXPECT_THAT(metrics.Text(), AllOf(HasSubstr(absl::StrCat("version=\"", Version(), "\"} 1")),
                                    HasSubstr("process_start_time_seconds{role=\"router\"} 1")));
}

TEST(MetricsTest, TheSameNameAndLabelsYieldTheSameMetric) {
  Metrics metrics("decode");
  prometheus::Gauge& first = metrics.AddGauge("baton_x", "X.", {{"a", "1"}});
  EXPECT_EQ(&first, &metrics.AddGauge("baton_x", "X.", {{"a", "1"}}));
  EXPECT_NE(&first, &metrics.AddGauge("baton_x", "X.", {{"a", "2"}}));
}

TEST(MetricsTest, AClosedLabelHasOneSeriesPerValueFromTheStart) {
  Metrics metrics("decode");
  const auto lights = metrics.AddCounters<Color>("baton_lights_total", "Lights.", "color");
  lights[Color::kGreen].Increment();
  EXPECT_THAT(metrics.Text(),
              AllOf(HasSubstr("baton_lights_total{role=\"decode\",color=\"red\"} 0\n"),
                    HasSubstr("baton_lights_total{role=\"decode\",color=\"green\"} 1\n")));
}

TEST(MetricsTest, HistogramsKeepTheirBuckets) {
  Metrics metrics("decode");
  metrics.AddHistogram("baton_handoff_seconds", "H.", kHandoffBuckets).Observe(0.00015);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("le=\"0.0001\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("le=\"0.0002\"} 1\n"));
}

TEST(MetricsTest, BucketBoundsAscend) {
  for (const std::span<const double> buckets :
       {std::span<const double>(kTtftBuckets), std::span<const double>(kInterTokenBuckets),
        std::span<const double>(kHandoffBuckets), std::span<const double>(kDurationBuckets),
        std::span<const double>(kCountBuckets)}) {
    EXPECT_TRUE(std::is_sorted(buckets.begin(), buckets.end(), std::less_equal<>()));
  }
}

TEST(MetricsDeathTest, NamesOutsideTheConventionsAreRefused) {
  Metrics metrics("decode");
  EXPECT_DEATH(metrics.AddGauge("queue_depth", "Q."), "queue_depth");
  EXPECT_DEATH(metrics.AddCounter("baton_requests", "R."), "baton_requests");
}

TEST(MetricsTest, ReadersAreReadAtEveryScrapeAndShareFamilies) {
  Metrics metrics("decode");
  int value = 1;
  const Metrics::Reader one = metrics.AddReader([&](GaugeWriter& gauges) {
    gauges.Set("baton_x", "X.", value, {{"of", "one"}});
  });
  const Metrics::Reader other =
      metrics.AddReader([&](GaugeWriter& gauges) { gauges.Set("baton_x", "X.", 7); });
  EXPECT_THAT(metrics.Text(), HasSubstr("baton_x{role=\"decode\",of=\"one\"} 1\n"));
  value = 2;
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("baton_x{role=\"decode\",of=\"one\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("baton_x{role=\"decode\"} 7\n"));
  EXPECT_EQ(Count(text, "# TYPE baton_x gauge"), 1);
}

TEST(MetricsTest, AReaderThatEndedIsNotReadAgain) {
  Metrics metrics("decode");
  std::atomic<int> reads = 0;
  Metrics::Reader reader = metrics.AddReader([&](GaugeWriter&) { ++reads; });
  Metrics::Reader moved = std::move(reader);
  reader = Metrics::Reader();
  metrics.Text();
  EXPECT_EQ(reads, 1);
  moved = Metrics::Reader();
  metrics.Text();
  EXPECT_EQ(reads, 1);
}

TEST(MetricsTest, ReadersMayComeAndGoDuringScrapes) {
  Metrics metrics("decode");
  std::atomic<bool> stop = false;
  std::jthread scraper([&] {
    while (!stop) metrics.Text();
  });
  for (int i = 0; i < 200; ++i) {
    auto owned = std::make_unique<int>(i);
    const Metrics::Reader reader = metrics.AddReader(
        [value = owned.get()](GaugeWriter& gauges) { gauges.Set("baton_x", "X.", *value); });
  }
  stop = true;
  scraper.join();
}

TEST(MetricsTest, ServesScrapesOnAPortOfItsChoice) {
  Metrics metrics("prefill");
  EXPECT_EQ(metrics.port(), 0);
  ASSERT_THAT(metrics.Serve("127.0.0.1:0"), IsOk());
  ASSERT_NE(metrics.port(), 0);
  metrics.AddCounter("baton_x_total", "X.").Increment();
  const Metrics::Reader reader =
      metrics.AddReader([](GaugeWriter& gauges) { gauges.Set("baton_y", "Y.", 5); });
  EXPECT_THAT(Scrape(metrics.port()),
              AllOf(HasSubstr("200 OK"), HasSubstr("baton_x_total{role=\"prefill\"} 1"),
                    HasSubstr("baton_y{role=\"prefill\"} 5")));
}

TEST(MetricsTest, APortThatIsTakenIsAnErrorThatNamesIt) {
  Metrics first("prefill");
  ASSERT_THAT(first.Serve("127.0.0.1:0"), IsOk());
  const std::string taken = absl::StrCat("127.0.0.1:", first.port());
  Metrics second("decode");
  EXPECT_THAT(second.Serve(taken), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(taken)));
  EXPECT_THAT(second.Serve("no-port"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(second.Serve("127.0.0.1:99999"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("99999")));
}

TEST(MetricsTest, IdleConnectionsKeepNoScrapeWaiting) {
  Metrics metrics("prefill");
  ASSERT_THAT(metrics.Serve("127.0.0.1:0"), IsOk());
  std::vector<int> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(Connect(metrics.port()));
    ASSERT_GE(idle.back(), 0);
    const ssize_t half = i % 2 == 0 ? 5 : 0;  // of a request; some send nothing
    EXPECT_EQ(send(idle.back(), "GET /", half, MSG_NOSIGNAL), half);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(Scrape(metrics.port()), HasSubstr("baton_build_info"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  for (const int fd : idle) close(fd);
}

TEST(MetricsTest, OtherRequestsAreAnsweredAsHttpDemands) {
  Metrics metrics("prefill");
  ASSERT_THAT(metrics.Serve("127.0.0.1:0"), IsOk());
  const int port = metrics.port();
  EXPECT_THAT(Ask(port, "GET /metrics?x=1 HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Ask(port, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(port, "POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask(port, "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(port, std::string(9000, 'x')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\n")));
}

TEST(MetricsTest, ServesOnIpv6) {
  Metrics metrics("prefill");
  const absl::Status status = metrics.Serve("[::1]:0");
  if (absl::IsUnavailable(status)) GTEST_SKIP() << status;  // a machine without it
  ASSERT_THAT(status, IsOk());
  EXPECT_NE(metrics.port(), 0);
}

TEST(MetricsTest, TheServerEndsAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    Metrics metrics("prefill");
    ASSERT_THAT(metrics.Serve("127.0.0.1:0"), IsOk());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace baton
