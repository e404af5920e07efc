#include "router/metrics.h"

#include <utility>

namespace baton::router {
namespace {

// Counters with two closed labels, `outer` and then `inner`.
template <typename Outer, typename Inner>
auto AddMatrix(Metrics& metrics, const std::string& name, const std::string& help,
               const std::string& outer, const std::string& inner) {
  const auto row = [&](const char* outer_value) {
    std::array<prometheus::Counter*, LabelValues(Inner{}).size()> counters;
    for (size_t i = 0; i < counters.size(); ++i) {
      counters[i] =
          &metrics.AddCounter(name, help, {{outer, outer_value}, {inner, LabelValues(Inner{})[i]}});
    }
    return ByLabel<prometheus::Counter, Inner>(counters);
  };
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::array{row(LabelValues(Outer{})[I])...};
  }
  (std::make_index_sequence<LabelValues(Outer{}).size()>{});
}

}  // namespace

RouterMetrics::RouterMetrics(Metrics& metrics, const std::string& policy)
    : request_duration(metrics.AddHistogram("baton_request_duration_seconds",
                                            "Generations, from arrival to the last token.",
                                            kDurationBuckets)),
      time_to_first_token(metrics.AddHistogram(
          "baton_time_to_first_token_seconds",
          "From arrival at the router to the first token, hand-off and retries included.",
          kTtftBuckets)),
      inter_token_latency(metrics.AddHistogram("baton_inter_token_latency_seconds",
                                               "Time per token between two deltas.",
                                               kInterTokenBuckets)),
      stage_duration(metrics.AddHistograms<RouterStage>(
          "baton_stage_duration_seconds", "Parts of a request.", kDurationBuckets, "stage")),
      route_decisions(metrics.AddCounter("baton_route_decisions_total",
                                         "Pairs of workers chosen for an attempt.",
                                         {{"policy", policy}})),
      requests_running(metrics.AddGauge("baton_requests_running", "Generations under way.")),
      http_connections(metrics.AddGauge("baton_http_connections", "Open HTTP connections.")),
      http_tls_failures(
          metrics.AddCounter("baton_http_tls_failures_total",
                             "TLS handshakes of HTTP clients that failed after the client had sent "
                             "something; plain HTTP on the HTTPS port is one.")),
      prompt_tokens(metrics.AddCounter("baton_prompt_tokens_total", "Prompt tokens accepted.")),
      generation_tokens(
          metrics.AddCounter("baton_generation_tokens_total", "Tokens received from workers.")),
      requests_(AddMatrix<Endpoint, Outcome>(metrics, "baton_requests_total",
                                             "Requests by endpoint and how they ended.", "endpoint",
                                             "outcome")),
      retries_(AddMatrix<FailedLeg, RetryReason>(
          metrics, "baton_retries_total",
          "Attempts that were replaced by another, by the leg that failed and why.", "leg",
          "reason")) {}

void WriteWorkerHealth(const Snapshot& snapshot, GaugeWriter& gauges) {
  for (const Worker& worker : snapshot.workers) {
    const prometheus::Labels labels = {{"worker", worker.target},
                                       {"worker_role", WorkerRoleName(worker.role)}};
    gauges.Set("baton_worker_health", "1 when the worker can be used.", worker.Usable() ? 1 : 0,
               labels);
    gauges.Set("baton_worker_mismatch",
               "1 when the worker is ready, but no ready worker of the other role fits it.",
               worker.mismatch.empty() ? 0 : 1, labels);
  }
}

}  // namespace baton::router
