#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/bounded_queue.h"
#include "common/mutex.h"
#include "common/ticker.h"
#include "router/access/api_keys.h"
#include "router/dispatch/generation_service.h"
#include "router/http/body_budget.h"

namespace baton::router {

struct InferenceOptions {
  int threads = 2;  // that tokenize
  // Requests that wait for them, and the memory of their messages; more are RESOURCE_EXHAUSTED.
  int max_waiting = 64;
  int64_t max_waiting_bytes = 512 << 20;
  std::chrono::nanoseconds message_timeout = std::chrono::seconds(60);  // from the call on
  int64_t max_unread_bytes = 16 << 20;  // of a stream, that its client has not taken
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);  // client takes nothing
};

// baton.v1.Inference for clients that speak gRPC. Thread-safe. Requests are rendered and tokenized,
// which takes a second a megabyte, by threads of its own: gRPC's serve all calls, workers' too.
// A client that lets too much of a stream wait hears RESOURCE_EXHAUSTED, one that takes nothing for
// too long is cut off, as those of HTTP are; nothing more is generated for either.
class InferenceService final : public v1::Inference::Service {
 public:
  // Pointers must outlive this object and every call. Calls without one of the `keys` are
  // UNAUTHENTICATED, before their message is read; null: everybody may ask.
  InferenceService(RouterMetrics* metrics, const InferenceOptions& options, const ApiKeys* keys);
  // Every call must have ended.
  ~InferenceService() override;

  // Until now calls were UNAVAILABLE, before their message was read; now they find `service`. Once.
  void Begin(GenerationService* service) { service_ = service; }

 private:
  class Call;
  using GenerateReactor = grpc::ServerBidiReactor<v1::GenerateRequest, v1::GenerateResponse>;
  using ListModelsReactor = grpc::ServerBidiReactor<v1::ListModelsRequest, v1::ListModelsResponse>;

  ListModelsReactor* ListModels(const grpc::CallbackServerContext& context) const;
  // Whether a call may go on, by its metadata ("authorization").
  absl::Status Admit(const grpc::CallbackServerContext& context) const;
  void LookAtCalls();

  std::atomic<GenerationService*> service_{nullptr};
  RouterMetrics* const metrics_;
  const InferenceOptions options_;
  const ApiKeys* const keys_;
  BodyBudget waiting_bytes_;
  BoundedQueue<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;

  Mutex mutex_;
  absl::flat_hash_map<const Call*, std::weak_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  Ticker ticker_;  // looks at them
};

}  // namespace baton::router
