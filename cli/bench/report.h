#pragma once

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

BenchReport MakeReport(const std::vector<RequestRecord>& records, const Objectives& objectives);

std::string ReportText(const BenchReport& report, bool colour);
std::string ReportJson(const BenchReport& report);  // one object, ended; times in milliseconds
// A header, then a line for each request that was attempted.
std::string RecordsCsv(const std::vector<RequestRecord>& records);
// File names with their SVG documents.
std::vector<std::pair<std::string, std::string>> ReportCharts(
    const std::vector<RequestRecord>& records);

}  // namespace baton::cli
