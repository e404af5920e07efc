#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/top/metrics_text.h"

// A fleet as its metrics show it: pure, from readings to figures.

namespace baton::cli {

// All endpoints, read at about the same time.
struct Reading {
  std::chrono::steady_clock::time_point time;
  std::map<std::string, MetricsText> by_address = {};  // of /metrics; those that answered
  std::map<std::string, std::string> errors = {};      // of those that did not
  struct Worker {
    std::string address = {};  // by which routers know it
    std::string name = {};     // empty: it has none
  };
  std::map<std::string, Worker> worker_at = {};  // by the address of its metrics
};

struct Latency {
  double p50 = 0, p95 = 0, p99 = 0;  // seconds; NaN without samples
  double count = 0;
};

struct RouterFigures {
  double requests_per_s = 0;
  double failures_per_s = 0;  // outcomes other than ok, cancelled and invalid
  double retries_per_s = 0;
  double running = 0;
  double prompt_tokens_per_s = 0;
  double generation_tokens_per_s = 0;
  Latency ttft, itl;
  double requests = 0;  // since the start, and of them
  double failures = 0;
};

struct WorkerFigures {
  std::string address = {};  // as routers know it; that of its metrics if none does
  std::string name = {};     // empty: it has none
  std::string metrics_address = {};
  std::string role = {};
  double running = 0, waiting = 0;
  double tokens_per_s = 0;  // computed prompt tokens of prefill, generated ones of decode workers
  double pages_used = 0, pages_total = 0;  // used: by sequences and hand-offs
  double pages_prefix = 0;                 // kept for prompts to come; given up when wanted
  double handoff_bytes_per_s = 0;          // sent or received
  double failures = 0;                     // since the start
  std::string error = {};                  // it did not answer: the figures mean nothing
};

struct FleetFigures {
  RouterFigures router;  // of all routers together
  std::vector<WorkerFigures> workers;
};

// Rates are those between `previous` and `now`; percentiles cover what came since `window`. Null
// for either: since the processes started, and rates are 0.
FleetFigures Figures(const Reading* window, const Reading* previous, const Reading& now);

// UNAVAILABLE if there are workers and none answered: why the first did not, and what may help.
absl::Status AnyWorkerAnswered(const FleetFigures& fleet);

}  // namespace baton::cli
