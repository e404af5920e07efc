#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "cli/bench/distribution.h"
#include "cli/bench/report.h"
#include "cli/bench/statistics.h"
#include "cli/bench/trace.h"
#include "cli/bench/workload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(StatisticsTest, PercentilesAreThoseOfNumPy) {
  const std::vector<double> samples = {1, 2, 3, 4, 10};
  EXPECT_DOUBLE_EQ(Percentile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(samples, 0.5), 3);
  EXPECT_DOUBLE_EQ(Percentile(samples, 0.9), 7.6);
  EXPECT_DOUBLE_EQ(Percentile(samples, 0.99), 9.76);
  EXPECT_DOUBLE_EQ(Percentile(samples, 1), 10);
  EXPECT_TRUE(std::isnan(Percentile({}, 0.5)));
  const Summary summary = Summarize({10, 4, 3, 2, 1});
  EXPECT_DOUBLE_EQ(summary.mean, 4);
  EXPECT_DOUBLE_EQ(summary.p95, 8.8);
  EXPECT_DOUBLE_EQ(summary.max, 10);
}

TEST(TraceTest, WhatIsWrittenIsRead) {
  const std::vector<TraceRequest> requests = {
      {.timestamp_ms = 0, .input_length = 6758, .output_length = 500, .hash_ids = {0, 1, 2}},
      {.timestamp_ms = 27, .input_length = 1, .output_length = 1, .session_id = 4}};
  const auto read = ParseTrace(TraceText(requests), "t");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, requests);
}

TEST(TraceTest, ErrorsNameFileLineAndMember) {
  const auto refused = [](const char* said) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(said));
  };
  const std::string good = R"({"timestamp": 5, "input_length": 1, "output_length": 1})";
  EXPECT_THAT(ParseTrace(good + "\n\n{\"timestamp\": 6}", "t"), refused("t:3: "));
  EXPECT_THAT(ParseTrace(R"({"timestamp": 0, "input_length": 0, "output_length": 1})", "t"),
              refused("input_length"));
  EXPECT_THAT(
      ParseTrace(good + "\n" + R"({"timestamp": 4, "input_length": 1, "output_length": 1})", "t"),
      refused("t:2: timestamp is earlier"));
  EXPECT_THAT(ParseTrace("nonsense", "t"), refused("t:1: "));
  for (const char* time : {"-1", "9007199254740992", "1e300", "1e999", "null"}) {
    const std::string line =
        absl::StrCat("{\"timestamp\": ", time, ", \"input_length\": 1, \"output_length\": 1}");
    EXPECT_THAT(ParseTrace(line, "t"), refused("t:1: ")) << time;
  }
  EXPECT_THAT(ParseTrace(R"({"timestamp": 0, "input_length": 1, "output_length": 1e300})", "t"),
              refused("output_length"));
  EXPECT_THAT(ParseTrace("\n", "t"), refused("no requests"));
}

TEST(DistributionTest, MeansAreThoseAskedFor) {
  for (const char* text : {"400", "uniform:100:700", "exponential:400", "lognormal:400:0.8"}) {
    BATON_ASSERT_OK_AND_ASSIGN(const LengthDistribution lengths, LengthDistribution::Parse(text));
    std::mt19937_64 random(1);
    double sum = 0;
    for (int i = 0; i < 20000; ++i) sum += static_cast<double>(lengths.Sample(random));
    EXPECT_NEAR(sum / 20000, 400, 12) << text;
  }
}

TEST(DistributionTest, TailsEndWhereLengthsDo) {
  for (const char* text :
       {"exponential:16777216", "lognormal:16777216:40", "lognormal:1:10000000"}) {
    BATON_ASSERT_OK_AND_ASSIGN(const LengthDistribution lengths, LengthDistribution::Parse(text));
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000; ++i) {
      const int64_t length = lengths.Sample(random);
      ASSERT_GE(length, 1) << text;
      ASSERT_LE(length, 1 << 24) << text;
    }
  }
}

TEST(DistributionTest, WhatIsNoDistributionIsNamed) {
  for (const char* text :
       {"", "0", "some", "uniform:5", "uniform:9:3", "lognormal:4", "normal:1:2"}) {
    EXPECT_THAT(LengthDistribution::Parse(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }
}

WorkloadOptions Fixed(const char* input, const char* output) {
  WorkloadOptions options;
  options.input = *LengthDistribution::Parse(input);
  options.output = *LengthDistribution::Parse(output);
  return options;
}

TEST(WorkloadTest, ArrivalsAreAPoissonProcessOfTheRate) {
  WorkloadOptions options = Fixed("10", "5");
  options.requests = 4000;
  options.rate = 20;
  const std::vector<TraceRequest> requests = MakeWorkload(options);
  ASSERT_THAT(requests, SizeIs(4000));
  std::vector<double> gaps;
  for (size_t i = 1; i < requests.size(); ++i) {
    gaps.push_back(double(requests[i].timestamp_ms - requests[i - 1].timestamp_ms));
  }
  const double mean = std::accumulate(gaps.begin(), gaps.end(), 0.0) / double(gaps.size());
  double squares = 0;
  for (const double gap : gaps) squares += (gap - mean) * (gap - mean);
  EXPECT_NEAR(mean, 50, 3);
  EXPECT_NEAR(std::sqrt(squares / double(gaps.size())), 50, 4) << "as wide as its mean";
  EXPECT_EQ(MakeWorkload(options), requests) << "the seed decides";
}

TEST(WorkloadTest, ALaterTurnBeginsWithTheWholeConversation) {
  WorkloadOptions options = Fixed("70", "30");
  options.requests = 3;
  options.rate = 0;
  options.turns = 3;
  options.block_tokens = 64;
  const std::vector<TraceRequest> turns = MakeWorkload(options);
  ASSERT_THAT(turns, SizeIs(3));
  EXPECT_EQ(turns[1].input_length, 70 + 30 + 70);
  EXPECT_EQ(turns[2].session_id, turns[0].session_id);
  const auto first = PromptTokens(turns[0], 0, {.block_tokens = 64});
  const auto second = PromptTokens(turns[1], 1, {.block_tokens = 64});
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin()));
  EXPECT_NE(PromptTokens(turns[0], 0, {.block_tokens = 64, .seed = 2}), first);
}

TEST(WorkloadTest, GroupsShareTheirPrefixAndNothingElse) {
  WorkloadOptions options = Fixed("10", "5");
  options.requests = 4;
  options.shared_prefix = 128;
  options.prefix_groups = 2;
  options.block_tokens = 64;
  options.rate = 0;
  const std::vector<TraceRequest> requests = MakeWorkload(options);
  EXPECT_EQ(requests[0].input_length, 138);
  EXPECT_THAT(requests[0].hash_ids, ElementsAre(0, 1, 4));
  EXPECT_THAT(requests[1].hash_ids, ElementsAre(2, 3, 5));
  EXPECT_THAT(requests[2].hash_ids, ElementsAre(0, 1, 6));
}

TEST(WorkloadTest, TokensStayInTheirRangeAndDifferWithoutHashIds) {
  const TraceRequest request{.input_length = 300, .output_length = 1};
  const PromptOptions options{.block_tokens = 64, .low = 16, .high = 20};
  const auto one = PromptTokens(request, 0, options);
  ASSERT_THAT(one, SizeIs(300));
  for (const int32_t token : one) EXPECT_TRUE(token >= 16 && token < 20);
  EXPECT_NE(one, PromptTokens(request, 1, options));
  EXPECT_EQ(one, PromptTokens(request, 0, options));
}

RequestRecord Record(double due, double first, double ended, int64_t tokens) {
  RequestRecord record;
  record.attempted = true;
  record.due = record.sent = due;
  record.first = first;
  record.last = record.ended = ended;
  record.first_tokens = 1;
  record.completion_tokens = tokens;
  record.prompt_tokens = 100;
  return record;
}

int64_t CountOf(const std::string& text, char c) { return std::count(text.begin(), text.end(), c); }

TEST(ReportTest, LatenciesThroughputAndGoodput) {
  std::vector<RequestRecord> records = {Record(0, 0.1, 1.1, 11), Record(1, 1.5, 2, 6)};
  records.push_back(Record(0.5, 0, 0.6, 0));
  records.back().status = absl::ResourceExhaustedError("too many");
  records.emplace_back();  // never sent
  const BenchReport report = MakeReport(records, {.ttft_s = 0.2});
  EXPECT_EQ(report.requests, 3);
  EXPECT_EQ(report.succeeded, 2);
  EXPECT_EQ(report.failures.at("overload"), 1);
  EXPECT_DOUBLE_EQ(report.duration_s, 2);
  EXPECT_DOUBLE_EQ(report.requests_per_s, 1);
  EXPECT_DOUBLE_EQ(report.completion_tokens_per_s, 8.5);
  EXPECT_DOUBLE_EQ(report.ttft.max, 0.5);
  EXPECT_DOUBLE_EQ(report.tpot.max, 0.1);
  EXPECT_DOUBLE_EQ(report.good_requests_per_s, 0.5);
  EXPECT_DOUBLE_EQ(report.good_share, 1.0 / 3);

  EXPECT_THAT(ReportText(report, false), HasSubstr("1 overload, such as: too many"));
  BenchReport hostile = report;
  hostile.examples["overload"] = "too\033[2J many";
  EXPECT_THAT(ReportText(hostile, false), HasSubstr("such as: too[2J many"))
      << "a server gives the terminal no commands";
  const auto json = nlohmann::json::parse(ReportJson(report));
  EXPECT_DOUBLE_EQ(json["ttft_ms"]["max"], 500);
  const std::string csv = RecordsCsv("2/s", records);
  EXPECT_EQ(CountOf(csv, '\n'), 3) << "what was attempted";
  EXPECT_EQ(CountOf(csv, ','), 3 * CountOf(CsvHeader(), ','));
  EXPECT_THAT(ReportCharts(records), SizeIs(6));
  EXPECT_THAT(ReportText({report, report}, false), HasSubstr("TTFT p50"));
  EXPECT_THAT(ReportCharts(std::vector<BenchReport>{report, report}), SizeIs(3));
}

TEST(ReportTest, NothingAttemptedIsReportedAsThat) {
  const BenchReport report = MakeReport({}, {});
  EXPECT_EQ(report.requests, 0);
  EXPECT_FALSE(report.has_objectives);
  EXPECT_TRUE(nlohmann::json::parse(ReportJson(report))["ttft_ms"]["p50"].is_null());
  for (const auto& [name, svg] : ReportCharts(std::vector<RequestRecord>()))
    EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(ReportTest, WhatAServerSaysStaysInItsFieldOfTheTable) {
  RequestRecord record{.attempted = true};
  record.prefill_worker = "p:1,\n\"x\"";
  record.decode_worker = "d:1";
  EXPECT_THAT(RecordsCsv("1/s", {record}), HasSubstr(",\"p:1,\n\"\"x\"\"\",d:1\n"));
}

}  // namespace
}  // namespace baton::cli
