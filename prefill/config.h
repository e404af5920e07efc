#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/config.h"
#include "common/rpc/worker_host.h"
#include "engine/options_config.h"
#include "kvtransfer/fault/fault_plan.h"

namespace baton::prefill {

struct PrefillConfig {
  rpc::WorkerHostConfig host = {.listen = "127.0.0.1:7001", .metrics_listen = "127.0.0.1:9001"};
  engine::OptionsConfig engine;
  kvtransfer::FaultConfig faults;
  std::vector<std::string> transports = {"shm", "grpc"};  // best first

  // Affects behaviour.
  int queue_limit = 256;  // prompts that wait to be started
  // Percent of pages and slots that sequences not yet granted by one decode worker may hold.
  int max_ungranted = 50;
  std::chrono::nanoseconds grant_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds handoff_timeout = std::chrono::seconds(30);
};

// `config` must outlive `parser`.
void BindPrefillConfig(PrefillConfig& config, ConfigParser& parser);

}  // namespace baton::prefill
