#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/replay.h"
#include "cli/bench/statistics.h"

namespace baton::cli {

// What a request must keep to count as good; infinite: anything.
struct Objectives {
  double ttft_s = std::numeric_limits<double>::infinity();
  double tpot_s = std::numeric_limits<double>::infinity();
  double e2e_s = std::numeric_limits<double>::infinity();

  bool any() const;
};

struct BenchReport {
  std::string load;  // "4 at a time", "2.5/s", "trace"
  uint64_t seed = 0;
  int64_t requests = 0;                     // attempted
  int64_t succeeded = 0;                    // all else failed
  std::map<std::string, int64_t> failures;  // by kind: overload, timeout, unavailable, refused ...
  std::map<std::string, std::string> examples;  // of each kind one message
  double duration_s = 0;                        // first due to last end
  double requests_per_s = 0;  // succeeded; the rates below count only these as well
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  double prompt_tokens_per_s = 0, completion_tokens_per_s = 0;
  int64_t handoff_bytes = 0;
  Summary ttft, tpot, itl, e2e;  // seconds
  Summary send_delay;  // from due to sent: what the client itself, or --max-in-flight, cost
  bool has_objectives = false;
  double good_requests_per_s = 0;
  double good_share = 0;  // of the attempted
};

// `load` and `seed` are for the caller to fill in.
BenchReport MakeReport(const std::vector<RequestRecord>& records, const Objectives& objectives);

std::string ReportText(const BenchReport& report, bool colour);
// Of several loads: a line for each.
std::string ReportText(const std::vector<BenchReport>& reports, bool colour);
// One line of JSON for each report; times in milliseconds.
std::string ReportJson(const BenchReport& report);

// A header, and a line for each request that was attempted.
std::string CsvHeader();
std::string RecordsCsv(const std::string& load, const std::vector<RequestRecord>& records);
// File names with their SVG documents.
using Charts = std::vector<std::pair<std::string, std::string>>;
Charts ReportCharts(const std::vector<RequestRecord>& records);
// Of several loads: latency and throughput over the requests per second that were served.
Charts ReportCharts(const std::vector<BenchReport>& reports);

}  // namespace baton::cli
