#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config.h"
#include "common/rpc/credentials.h"
#include "engine/options_config.h"
#include "kvtransfer/fault/fault_plan.h"

namespace baton::worker {

// What workers of both roles are told; a role's configuration is this and its own.
struct WorkerConfig {
  // Affects behaviour.
  std::string listen = "127.0.0.1:7000";
  std::string advertise{};  // host:port told to others; empty: listen's host and the bound port
  std::string name{};       // what people call it; empty: by that address
  std::string metrics_listen = "127.0.0.1:9000";  // empty: not served
  rpc::ClusterTls tls{};
  std::string log_level = "info";
  std::chrono::nanoseconds drain_timeout = std::chrono::minutes(5);
  std::vector<std::string> transports = {"shm", "grpc"};  // of hand-offs, best first
  kvtransfer::FaultConfig faults{};

  engine::OptionsConfig engine{};
};

// `config` must outlive `parser`, which checks it.
void BindWorkerConfig(WorkerConfig& config, ConfigParser& parser);

// Adds what a worker would refuse once it looks at files: certificates, the model without its
// weights, and options that do not fit it.
void InspectConfig(const WorkerConfig& config, ErrorList& errors);

}  // namespace baton::worker
