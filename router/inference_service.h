#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "common/bounded_queue.h"
#include "router/access/api_keys.h"
#include "router/dispatch/generation_service.h"

namespace baton::router {

// baton.v1.Inference for clients that speak gRPC. Thread-safe. Requests are rendered and tokenized,
// which takes a second a megabyte, by threads of its own: gRPC's serve all calls, workers' too.
class InferenceService final : public v1::Inference::Service {
 public:
  // Pointers must outlive this object and every call. `threads` tokenize, and at most
  // `max_waiting` requests wait for them; more are RESOURCE_EXHAUSTED.
  // Calls without one of the `keys` are UNAUTHENTICATED, before their message is read; null:
  // everybody may ask.
  InferenceService(RouterMetrics* metrics, int threads, int max_waiting, const ApiKeys* keys);
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

  std::atomic<GenerationService*> service_{nullptr};
  RouterMetrics* const metrics_;
  const ApiKeys* const keys_;
  BoundedQueue<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
};

}  // namespace baton::router
