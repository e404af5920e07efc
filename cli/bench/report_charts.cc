#include <algorithm>
#include <cmath>
#include <map>

#include "cli/bench/report.h"
#include "cli/svg_chart.h"

namespace baton::cli {
namespace {

constexpr int kTimeSlices = 60;

// Output tokens a second, and requests under way, over the run. The tokens of an answer are taken
// to come evenly between its first and its last.
std::pair<Series, Series> OverTime(const std::vector<RequestRecord>& records) {
  double end = 0;
  for (const RequestRecord& record : records) end = std::max(end, record.ended);
  const double slice = std::max(end, 1e-9) / kTimeSlices;
  Series tokens{.name = "", .points = {}};
  Series running = tokens;
  for (int i = 0; i < kTimeSlices; ++i) {
    const double from = i * slice, to = from + slice;
    double arrived = 0, under_way = 0;
    for (const RequestRecord& record : records) {
      if (!record.attempted) continue;
      const auto overlap = [&](double begin, double finish) {
        return std::max(0.0, std::min(finish, to) - std::max(begin, from));
      };
      under_way += overlap(record.sent, record.ended) / slice;
      if (!record.status.ok()) continue;
      const double span = std::max(record.last - record.first, slice * 1e-3);
      arrived += record.completion_tokens * overlap(record.first, record.first + span) / span;
    }
    tokens.points.emplace_back(from + slice / 2, arrived / slice);
    running.points.emplace_back(from + slice / 2, under_way);
  }
  return {tokens, running};
}

// First-token latency over prompt length, where prompts differ: the median of each tenth of them.
std::string TtftByPrompt(const std::vector<RequestRecord>& records) {
  std::vector<std::pair<double, double>> samples;
  for (const RequestRecord& record : records) {
    if (record.attempted && record.status.ok()) {
      samples.emplace_back(record.prompt_tokens, record.ttft() * 1e3);
    }
  }
  std::sort(samples.begin(), samples.end());
  Series medians{.name = "", .points = {}};
  const size_t group = std::max<size_t>(1, samples.size() / 10);
  for (size_t begin = 0; begin < samples.size(); begin += group) {
    const size_t end = std::min(samples.size(), begin + group);
    std::vector<double> times;
    for (size_t i = begin; i < end; ++i) times.push_back(samples[i].second);
    medians.points.emplace_back(samples[(begin + end) / 2].first, Summarize(times).p50);
  }
  return LineChart({.title = "Time to first token by prompt", .x = "prompt tokens", .y = "ms"},
                   {medians});
}

}  // namespace

Charts ReportCharts(const std::vector<RequestRecord>& records) {
  std::vector<double> ttft, tpot, itl, e2e;
  for (const RequestRecord& record : records) {
    if (!record.attempted || !record.status.ok()) continue;
    ttft.push_back(record.ttft() * 1e3);
    e2e.push_back(record.e2e() * 1e3);
    if (std::isfinite(record.tpot())) tpot.push_back(record.tpot() * 1e3);
    for (const double gap : record.gaps) itl.push_back(gap * 1e3);
  }
  const auto [tokens, running] = OverTime(records);
  const auto cdf = [](const char* title, const char* name, const std::vector<double>& samples) {
    return CdfChart({.title = title, .x = "ms", .y = "share of samples"}, {{name, samples}});
  };
  return {{"ttft.svg", cdf("Time to first token", "TTFT", ttft)},
          {"itl.svg", CdfChart({.title = "Between tokens", .x = "ms", .y = "share of samples"},
                               {{"ITL", itl}, {"TPOT", tpot}})},
          {"e2e.svg", cdf("Whole request", "E2E", e2e)},
          {"ttft_by_prompt.svg", TtftByPrompt(records)},
          {"throughput.svg",
           LineChart({.title = "Throughput", .x = "s", .y = "output tokens/s"}, {tokens})},
          {"under_way.svg",
           LineChart({.title = "Requests under way", .x = "s", .y = "requests"}, {running})}};
}

Charts ReportCharts(const std::vector<BenchReport>& reports) {
  const auto over_load = [&](const char* name, const auto& value) {
    Series series{.name = name, .points = {}};
    for (const BenchReport& report : reports) {
      series.points.emplace_back(report.requests_per_s, value(report));
    }
    return series;
  };
  using Report = const BenchReport&;
  const char* x = "requests/s served";
  return {
      {"load_ttft.svg",
       LineChart({.title = "Time to first token by load", .x = x, .y = "ms"},
                 {over_load("p50", [](Report report) { return report.ttft.p50 * 1e3; }),
                  over_load("p99", [](Report report) { return report.ttft.p99 * 1e3; })})},
      {"load_tpot.svg",
       LineChart({.title = "Time per output token by load", .x = x, .y = "ms"},
                 {over_load("p50", [](Report report) { return report.tpot.p50 * 1e3; }),
                  over_load("p99", [](Report report) { return report.tpot.p99 * 1e3; })})},
      {"load_throughput.svg",
       LineChart({.title = "Throughput by load", .x = x, .y = "output tokens/s"},
                 {over_load("", [](Report report) { return report.completion_tokens_per_s; })})}};
}

}  // namespace baton::cli
