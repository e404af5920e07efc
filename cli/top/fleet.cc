#include "cli/top/fleet.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace baton::cli {
namespace {

constexpr const char* kRequests = "baton_requests_total";
constexpr std::array kFailures = {"overload", "deadline", "mismatch", "unavailable", "internal"};
// Endpoints that generate; the others are questions about the router itself.
constexpr std::array kGenerating = {"chat_completions", "completions", "grpc_generate"};

const MetricsText& In(const Reading* reading, const std::string& address) {
  static const MetricsText kNothing;
  if (reading == nullptr) return kNothing;
  const auto found = reading->by_address.find(address);
  return found == reading->by_address.end() ? kNothing : found->second;
}

std::string RoleOf(const MetricsText& metrics) {
  const auto& samples = metrics.Samples("baton_build_info");
  if (samples.empty()) return "";
  const auto role = samples[0].first.find("role");
  return role == samples[0].first.end() ? "" : role->second;
}

double Failures(const MetricsText& metrics, const Labels& with = {}) {
  double sum = 0;
  for (const char* outcome : kFailures) {
    Labels labels = with;
    labels["outcome"] = outcome;
    sum += metrics.Sum(kRequests, labels);
  }
  return sum;
}

// Two readings of one endpoint, and the time between them.
struct Endpoint {
  const MetricsText& now;
  const MetricsText& previous;
  double seconds = 0;  // 0: no previous reading

  template <typename Value>
  double Rate(const Value& value) const {
    if (seconds <= 0) return 0;
    return std::max(0.0, value(now) - value(previous)) / seconds;  // less: it was restarted
  }
  double RateOf(const std::string& name, const Labels& with = {}) const {
    return Rate([&](const MetricsText& metrics) { return metrics.Sum(name, with); });
  }
};

void AddRouter(const Endpoint& endpoint, RouterFigures& router) {
  for (const char* generating : kGenerating) {
    const Labels with = {{"endpoint", generating}};
    const auto failures = [&](const MetricsText& metrics) { return Failures(metrics, with); };
    router.requests_per_s += endpoint.RateOf(kRequests, with);
    router.failures_per_s += endpoint.Rate(failures);
    router.requests += endpoint.now.Sum(kRequests, with);
    router.failures += failures(endpoint.now);
  }
  router.retries_per_s += endpoint.RateOf("baton_retries_total");
  router.running += endpoint.now.Sum("baton_requests_running");
  router.prompt_tokens_per_s += endpoint.RateOf("baton_prompt_tokens_total");
  router.generation_tokens_per_s += endpoint.RateOf("baton_generation_tokens_total");
}

// Who it is whose metrics are at `address`.
WorkerFigures Identified(const std::string& address, const Reading& reading) {
  WorkerFigures worker{.address = address, .metrics_address = address};
  if (const auto found = reading.worker_at.find(address); found != reading.worker_at.end()) {
    worker.address = found->second.address;
    worker.name = found->second.name;
  }
  return worker;
}

void AddFigures(const std::string& role, const Endpoint& endpoint, WorkerFigures& worker) {
  const MetricsText& now = endpoint.now;
  worker.role = role;
  worker.running = now.Sum("baton_requests_running");
  worker.waiting = now.Sum("baton_requests_waiting");
  worker.tokens_per_s = endpoint.RateOf(role == "prefill" ? "baton_prompt_tokens_total"
                                                          : "baton_generation_tokens_total");
  if (role == "prefill") worker.tokens_per_s -= endpoint.RateOf("baton_prefix_cached_tokens_total");
  worker.pages_total = now.Sum("baton_kv_pages_total");
  worker.pages_prefix = now.Sum("baton_kv_pages", {{"owner", "prefix"}});
  worker.pages_used =
      worker.pages_total - worker.pages_prefix - now.Sum("baton_kv_pages", {{"owner", "free"}});
  worker.handoff_bytes_per_s = endpoint.RateOf("baton_kv_transfer_bytes_total");
  worker.failures = Failures(now);
}

// Of one histogram of all routers.
Latency LatencyOf(const std::string& name, const Reading* window, const Reading& now) {
  const auto sum = [&](const Reading& reading) {
    Histogram histogram;
    for (const auto& [address, metrics] : reading.by_address) {
      histogram.Add(metrics.HistogramOf(name, {{"role", "router"}}));
    }
    return histogram;
  };
  Histogram histogram = sum(now);
  if (window != nullptr) histogram = histogram.Since(sum(*window));
  return {.p50 = histogram.Quantile(0.5),
          .p95 = histogram.Quantile(0.95),
          .p99 = histogram.Quantile(0.99),
          .count = histogram.count()};
}

}  // namespace

FleetFigures Figures(const Reading* window, const Reading* previous, const Reading& now) {
  FleetFigures fleet;
  for (const auto& [address, metrics] : now.by_address) {
    const bool known = previous != nullptr && previous->by_address.contains(address);
    const Endpoint endpoint{
        .now = metrics,
        .previous = In(previous, address),
        .seconds = known ? std::chrono::duration<double>(now.time - previous->time).count() : 0};
    const std::string role = RoleOf(metrics);
    if (role == "router") {
      AddRouter(endpoint, fleet.router);
    } else {
      AddFigures(role, endpoint, fleet.workers.emplace_back(Identified(address, now)));
    }
  }
  for (const auto& [address, error] : now.errors) {
    fleet.workers.emplace_back(Identified(address, now)).error = error;
  }
  std::stable_sort(fleet.workers.begin(), fleet.workers.end(),
                   [](const auto& a, const auto& b) { return a.role > b.role; });
  fleet.router.ttft = LatencyOf("baton_time_to_first_token_seconds", window, now);
  fleet.router.itl = LatencyOf("baton_inter_token_latency_seconds", window, now);
  return fleet;
}

absl::Status AnyWorkerAnswered(const FleetFigures& fleet) {
  const auto answered = [](const WorkerFigures& worker) { return worker.error.empty(); };
  if (fleet.workers.empty() || std::any_of(fleet.workers.begin(), fleet.workers.end(), answered)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("no worker could be asked: ", fleet.workers.front().error));
}

}  // namespace baton::cli
