#pragma once

#include <chrono>

#include "common/config.h"
#include "worker/config.h"

namespace baton::prefill {

struct PrefillConfig : worker::WorkerConfig {
  PrefillConfig() : WorkerConfig{.listen = "127.0.0.1:7001", .metrics_listen = "127.0.0.1:9001"} {}

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
