#pragma once

#include <array>

#include "common/metrics.h"
#include "common/worker_metrics.h"
#include "router/dispatch/attempt_tracker.h"
#include "router/registry/snapshot.h"

namespace baton::router {

enum class Endpoint { kChatCompletions, kCompletions, kGrpcGenerate, kModels, kHealth, kOther };
constexpr auto LabelValues(Endpoint) {
  return std::to_array<const char*>(
      {"chat_completions", "completions", "grpc_generate", "models", "health", "other"});
}

// What the router itself does with a request; the workers export the legs in between.
enum class RouterStage {
  kTokenize,    // chat rendering included
  kRoute,       // one decision
  kFirstToken,  // attempt opened until its first token arrived: queues, prefill and hand-off
};
constexpr auto LabelValues(RouterStage) {
  return std::to_array<const char*>({"tokenize", "route", "first_token"});
}

// Updated from any thread. `metrics` must outlive this object.
class RouterMetrics {
 public:
  // `policy` is a label value of baton_route_decisions_total.
  RouterMetrics(Metrics& metrics, const std::string& policy);

  void CountRequest(Endpoint endpoint, Outcome outcome) {
    requests_[static_cast<size_t>(endpoint)][outcome].Increment();
  }
  void CountRetry(FailedLeg leg, RetryReason reason) {
    retries_[static_cast<size_t>(leg)][reason].Increment();
  }
  prometheus::Histogram& request_duration;  // seconds, of generations
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token_latency;
  const ByLabel<prometheus::Histogram, RouterStage> stage_duration;
  prometheus::Counter& route_decisions;
  prometheus::Gauge& requests_running;
  prometheus::Gauge& http_connections;
  prometheus::Counter& http_tls_failures;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;

 private:
  std::array<ByLabel<prometheus::Counter, Outcome>, LabelValues(Endpoint{}).size()> requests_;
  std::array<ByLabel<prometheus::Counter, RetryReason>, LabelValues(FailedLeg{}).size()> retries_;
};

// Of the members: baton_worker_health{worker,worker_role}, 1 when the worker can be used, and
// baton_worker_mismatch, 1 when it cannot because it fits no worker of the other role.
void WriteWorkerHealth(const Snapshot& snapshot, GaugeWriter& gauges);

}  // namespace baton::router
