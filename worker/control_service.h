#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "baton/v1/worker.grpc.pb.h"
#include "common/bounded_queue.h"
#include "common/worker_metrics.h"
#include "kvtransfer/manifest.h"
#include "worker/role.h"

namespace baton::worker {

// WorkerControl on the wire: who a worker is and how it does, its half of handshakes, Drain.
class ControlService final : public v1::WorkerControl::CallbackService {
 public:
  // `on_drain` runs when Drain is called; it must not wait for what runs. `role` and `metrics`
  // outlive the service.
  ControlService(Role& role, WorkerMetrics& metrics, std::function<void()> on_drain);
  // Stop.
  ~ControlService() override;

  // Until now calls were UNAVAILABLE; now they find a worker that is ready. `info` is what GetInfo
  // says, but for readiness and load. Once.
  void Begin(const v1::GetInfoResponse& info, const kvtransfer::Manifest& manifest);
  // Says so from now on.
  void SetNotReady() { ready_ = false; }
  // When the server has shut down: no call comes any more. Idempotent.
  void Stop();

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::GetInfoRequest* request,
                                    v1::GetInfoResponse* response) override;
  grpc::ServerUnaryReactor* Handshake(grpc::CallbackServerContext* context,
                                      const v1::HandshakeRequest* request,
                                      v1::HandshakeResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

 private:
  // In line until one of the handshake threads has tried the transports.
  struct AskedHandshake {
    grpc::CallbackServerContext* context;
    const v1::HandshakeRequest* request;
    v1::HandshakeResponse* response;
    grpc::ServerUnaryReactor* reactor;
  };
  void AnswerHandshakes();
  absl::Status Answer(const v1::HandshakeRequest& request, v1::HandshakeResponse* response);

  Role& role_;
  WorkerMetrics& metrics_;
  const std::function<void()> on_drain_;

  // Written before begun_, read after it.
  v1::GetInfoResponse info_;
  kvtransfer::Manifest manifest_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> ready_{false};

  BoundedQueue<AskedHandshake> handshakes_;
  std::vector<std::jthread> handshake_threads_;
};

}  // namespace baton::worker
