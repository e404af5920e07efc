#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config.h"
#include "common/rpc/credentials.h"
#include "common/tls/certificate_files.h"

namespace baton::router {

struct RouterConfig {
  // Affects behaviour.
  std::string listen = "127.0.0.1:8000";
  std::string grpc_listen = "127.0.0.1:8001";
  std::string metrics_listen = "127.0.0.1:9000";
  std::string api_keys_file;      // empty: everybody may ask
  tls::CertificateFiles api_tls;  // what clients see, without a CA; empty: plain text
  rpc::ClusterTls tls;
  std::string model_dir;
  std::string model_name;  // empty: the name of the directory
  std::vector<std::string> prefill_workers;
  std::vector<std::string> decode_workers;
  std::chrono::nanoseconds resolve_interval = std::chrono::seconds(5);
  std::string policy = "prefix-aware";
  int max_attempts = 2;
  std::chrono::nanoseconds request_timeout = std::chrono::minutes(10);
  std::chrono::nanoseconds drain_timeout = std::chrono::seconds(60);
  int max_concurrent_requests = 1024;
  int max_connections = 4096;
  int64_t max_body_bytes = 16 << 20;
  int64_t max_buffered_bytes = 512 << 20;
  int64_t max_header_bytes = 16 << 10;
  int64_t max_unread_bytes = 16 << 20;
  std::chrono::nanoseconds header_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds body_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds idle_timeout = std::chrono::seconds(75);
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);
  int max_prompt_tokens = 0;  // 0: as many as the largest decode worker can hold
  int64_t max_logprobs_bytes = 512 << 20;
  std::string log_level = "info";

  // Affects performance.
  int http_threads = 2;
};

// Adds what no option can be judged for alone: addresses given twice, certificates without keys,
// limits that contradict each other.
void CheckRouterConfig(const RouterConfig& config, ErrorList& errors);

// `config` must outlive `parser`, which checks it.
void BindRouterConfig(RouterConfig& config, ConfigParser& parser);

}  // namespace baton::router
