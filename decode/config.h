#pragma once

#include <chrono>
#include <cstdint>

#include "common/config.h"
#include "worker/config.h"

namespace baton::decode {

struct DecodeConfig : worker::WorkerConfig {
  DecodeConfig()
      : WorkerConfig{.listen = "127.0.0.1:7002",
                     .metrics_listen = "127.0.0.1:9002",
                     .engine = {.step_tokens = 1024, .chunk_tokens = 512}} {}

  // Affects behaviour.
  int queue_limit = 256;             // requests that wait, from admission to their first step
  int queue_limit_per_prefill = 64;  // of them, asked of one prefill worker
  int local_prefill_tokens = 64;     // of a prompt cached here: up to so many are computed here
  std::chrono::nanoseconds accept_timeout = std::chrono::seconds(5);
  std::chrono::nanoseconds queue_timeout = std::chrono::minutes(5);
  std::chrono::nanoseconds handoff_timeout = std::chrono::seconds(10);

  // Affects performance.
  int64_t growth_tokens = 256;  // output tokens with pages reserved on admission
};

// `config` must outlive `parser`.
void BindDecodeConfig(DecodeConfig& config, ConfigParser& parser);

}  // namespace baton::decode
