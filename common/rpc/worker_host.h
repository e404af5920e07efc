#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/worker.pb.h"
#include "common/config.h"
#include "common/ids.h"
#include "common/metrics.h"
#include "common/rpc/credentials.h"
#include "common/worker_load.h"
#include "common/worker_metrics.h"
#include "grpcpp/impl/service_type.h"

namespace baton::rpc {

struct WorkerHostConfig {
  // Affects behaviour.
  std::string listen = "127.0.0.1:7000";
  std::string advertise{};  // host:port told to others; empty: listen's host and the bound port
  std::string metrics_listen = "127.0.0.1:9000";
  ClusterTls tls{};
  std::string log_level = "info";
  std::chrono::nanoseconds drain_timeout = std::chrono::minutes(5);
};

// `config` must outlive `parser`.
void BindWorkerHost(WorkerHostConfig& config, ConfigParser& parser);

// What prefill and decode workers have around their engine alike: identity, gRPC server with
// WorkerControl and health, metrics endpoint, readiness. Thread-safe after Start.
class WorkerHost {
 public:
  // What a role puts in. The functions are called from any thread and must be quick.
  struct Role {
    v1::GetInfoResponse info;  // role, model, hashes, context; the rest is filled in here
    std::function<WorkerLoad()> load;
    std::function<void()> on_tick;  // several times a second, for deadlines
    // Compares and answers manifest and transport; `self` is filled in here. On one of two threads
    // of their own, thread-safe: it may take as long as the trial of a transport.
    std::function<absl::StatusOr<v1::HandshakeResponse>(const v1::HandshakeRequest&)> handshake;
    std::function<void()> on_drain;        // Drain was called; must not wait for what runs
    std::vector<grpc::Service*> services;  // outlive the host
    std::vector<std::string> service_names;
    std::shared_ptr<grpc::ServerCredentials> credentials = Credentials().server;
  };

  // `role` is prefill or decode: the constant label of all metrics.
  WorkerHost(const WorkerHostConfig& config, std::string role);
  ~WorkerHost();

  Incarnation incarnation() const;
  Metrics& registry();
  WorkerMetrics& metrics();
  // Serves, ready, when it returns. UNAVAILABLE, naming the address, when one cannot be bound;
  // INVALID_ARGUMENT when others could not reach what would be advertised.
  absl::Status Start(Role role);
  // Valid after Start, as are those below.
  v1::WorkerRef self() const;
  // "listening grpc=host:port metrics=host:port incarnation=...": for scripts, on stdout.
  std::string ListeningLine() const;

  WorkerLoad load() const;

  // Not ready from now on: health is NOT_SERVING, GetInfo says so. Calls still come in.
  void SetNotReady();
  // Refuses new calls, cancels those that run longer than `grace`, waits for the last. Afterwards
  // the role is called by load() alone.
  void Shutdown(std::chrono::nanoseconds grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::rpc
