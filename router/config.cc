#include "router/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/rpc/credentials.h"
#include "common/status_macros.h"
#include "router/registry/membership.h"

namespace baton::router {
namespace {

// A process plays one role.
absl::Status CheckRolesApart(const RouterConfig& config) {
  const auto prefill = ParseWorkerList(WorkerRole::kPrefill, config.prefill_workers);
  BATON_RETURN_IF_ERROR(prefill.status());
  const auto decode = ParseWorkerList(WorkerRole::kDecode, config.decode_workers);
  BATON_RETURN_IF_ERROR(decode.status());
  for (const ListedWorkers& worker : *prefill) {
    if (std::ranges::count(*decode, worker.target, &ListedWorkers::target) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("prefill-workers and decode-workers both have ", worker.target));
  }
  return absl::OkStatus();
}

}  // namespace

void CheckRouterConfig(const RouterConfig& config, ErrorList& errors) {
  errors.Add(CheckListensApart({{"listen", config.listen},
                                {"grpc-listen", config.grpc_listen},
                                {"metrics-listen", config.metrics_listen}}));
  errors.Add(CheckRolesApart(config));
  const auto& [certificate, key, ca] = config.api_tls;
  if (certificate.empty() != key.empty()) {
    errors.Add(absl::InvalidArgumentError(absl::StrCat("api-tls-cert-file is '", certificate,
                                                       "' and api-tls-key-file '", key,
                                                       "': give both or neither")));
  }
  if (config.max_buffered_bytes < config.max_body_bytes) {
    errors.Add(absl::InvalidArgumentError(
        absl::StrCat("max-buffered-bytes is ", config.max_buffered_bytes,
                     ", less than the max-body-bytes of ", config.max_body_bytes)));
  }
}

void BindRouterConfig(RouterConfig& config, ConfigParser& parser) {
  parser.Group("Network");
  const auto is_worker = [](const std::string& entry) {
    return ParseWorkerList(WorkerRole::kDecode, {entry}).ok();
  };
  const auto address = [&](const char* name, std::string* field, const char* help) {
    parser.Add(name, field, help).Format("host:port", IsHostPort);
  };
  address("listen", &config.listen, "host:port of the OpenAI HTTP API; port 0 picks one");
  address("grpc-listen", &config.grpc_listen, "host:port of baton.v1.Inference");
  address("metrics-listen", &config.metrics_listen, "host:port of GET /metrics");

  parser.Add("api-keys-file", &config.api_keys_file,
             "clients must show one of its keys, one a line, as \"Authorization: Bearer KEY\"; "
             "changes are followed. Empty: everybody may ask");
  parser.Add("api-tls-cert-file", &config.api_tls.certificate,
             "PEM file with the certificate that clients see, over HTTP and gRPC, both then under "
             "TLS; changes are followed. Empty: plain text");
  parser.Add("api-tls-key-file", &config.api_tls.key, "PEM file with its private key");
  rpc::BindClusterTls(config.tls, parser);

  parser.Group("Model");
  parser.Add("model-dir", &config.model_dir, "directory with tokenizer.json and config.json")
      .Required();
  parser.Add("model-name", &config.model_name, "as clients name it; empty: the directory's name");

  parser.Group("Workers");
  parser
      .Add("prefill-workers", &config.prefill_workers,
           "host:port of each, or dns:host:port for all addresses that a name has, now and later; "
           "none: decode workers prefill by themselves")
      .Format("host:port or dns:host:port", is_worker);
  parser.Add("decode-workers", &config.decode_workers, "the same")
      .Format("host:port or dns:host:port", is_worker)
      .Required();
  parser
      .Add("resolve-interval", &config.resolve_interval, "between two lookups of names after dns:")
      .Range(0.1, 3600);
  parser.Add("policy", &config.policy, "how a pair of workers is chosen")
      .OneOf({"prefix-aware", "least-loaded", "round-robin"});
  parser
      .Add("max-attempts", &config.max_attempts,
           "attempts at a request, the first included, while the client has seen nothing; after a "
           "crash there is one more at most")
      .Range(1, 10);

  parser.Group("Limits");
  parser.Add("request-timeout", &config.request_timeout, "from arrival to the last token");
  parser.Add("drain-timeout", &config.drain_timeout,
             "how long running requests may take after SIGTERM");
  parser
      .Add("max-concurrent-requests", &config.max_concurrent_requests,
           "generations under way; more are answered 503")
      .Range(1, 1 << 20);
  parser.Add("max-connections", &config.max_connections, "HTTP connections; more are answered 503")
      .Range(1, 1 << 20);
  parser.Add("max-body-bytes", &config.max_body_bytes, "of an HTTP request; more is answered 413")
      .Range(1024, 1 << 30)
      .Unit("bytes");
  parser
      .Add(
          "max-buffered-bytes", &config.max_buffered_bytes,
          "of the bodies of all HTTP requests that are being received, and as much again of gRPC's "
          "messages, at least 64 MiB; more are answered 503 and RESOURCE_EXHAUSTED")
      .Range(1024, int64_t{1} << 40)
      .Unit("bytes");
  parser
      .Add("max-header-bytes", &config.max_header_bytes, "of an HTTP request; more is answered 431")
      .Range(1024, 1 << 20)
      .Unit("bytes");
  parser
      .Add("max-unread-bytes", &config.max_unread_bytes,
           "of a stream that wait for a client; one that lets more wait is cut off")
      .Range(1024, 1 << 30)
      .Unit("bytes");
  parser.Add("header-timeout", &config.header_timeout,
             "for the headers of a request to arrive; then 408");
  parser.Add("body-timeout", &config.body_timeout,
             "for its body, and for the message of a gRPC call");
  parser.Add("idle-timeout", &config.idle_timeout,
             "between two requests of a connection; then it is closed");
  parser.Add(
      "write-timeout", &config.write_timeout,
      "for a client to take what was written, ten times as long over gRPC; then it counts as "
      "gone");
  parser
      .Add("max-prompt-tokens", &config.max_prompt_tokens,
           "of a request; more is answered 400. 0: as many as the largest decode worker can hold")
      .Range(0, 1 << 30)
      .Unit("tokens");
  parser
      .Add("max-logprobs-bytes", &config.max_logprobs_bytes,
           "of memory that the log-probabilities of an answer that is not streamed may take, 512 "
           "for each; what may take more is answered 400")
      .Range(1024, int64_t{1} << 40)
      .Unit("bytes");

  parser.Group("Process");
  parser
      .Add("http-threads", &config.http_threads,
           "for connections, and as many each for tokenizing what comes over HTTP and gRPC")
      .Range(1, 256);
  parser.Add("log-level", &config.log_level, "least severe level that is logged")
      .OneOf({"trace", "debug", "info", "warning", "error", "off"});
  parser.Check([&config](ErrorList& errors) { CheckRouterConfig(config, errors); });
}

}  // namespace baton::router
