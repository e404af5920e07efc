#include "router/router.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/rpc/credentials.h"
#include "common/rpc/server.h"
#include "common/status_macros.h"
#include "common/ticker.h"
#include "router/access/api_keys.h"
#include "router/dispatch/generation_service.h"
#include "router/dispatch/grpc_decode_client.h"
#include "router/http/open_files.h"
#include "router/http/server.h"
#include "router/inference_service.h"
#include "router/metrics.h"
#include "router/openai/api.h"
#include "router/registry/membership.h"
#include "router/registry/poller.h"

namespace baton::router {
namespace {

// For answers that are complete but not yet written when everything else has ended.
constexpr std::chrono::seconds kFlushTime{5};
constexpr std::chrono::seconds kFirstPollTime{1};
constexpr std::chrono::milliseconds kHealthPeriod{100};
// Besides HTTP connections, served and refused: gRPC's, libraries, logs.
constexpr int kOtherFiles = 256;
// gRPC's budget has its connections and calls in it, not only messages.
constexpr int64_t kLeastGrpcBytes = 64 << 20;

absl::StatusOr<std::vector<ListedWorkers>> WorkersOf(const RouterConfig& config) {
  BATON_ASSIGN_OR_RETURN(std::vector<ListedWorkers> listed,
                         ParseWorkerList(WorkerRole::kPrefill, config.prefill_workers));
  BATON_ASSIGN_OR_RETURN(const std::vector<ListedWorkers> decode,
                         ParseWorkerList(WorkerRole::kDecode, config.decode_workers));
  listed.insert(listed.end(), decode.begin(), decode.end());
  return listed;
}

HttpServerOptions HttpOptionsOf(const RouterConfig& config) {
  HttpServerOptions options;
  options.listen = config.listen;
  options.tls = config.api_tls;
  options.threads = config.http_threads;
  options.max_connections = config.max_connections;
  options.max_header_bytes = config.max_header_bytes;
  options.max_body_bytes = config.max_body_bytes;
  options.max_buffered_bytes = config.max_buffered_bytes;
  options.max_unread_bytes = config.max_unread_bytes;
  options.header_timeout = config.header_timeout;
  options.body_timeout = config.body_timeout;
  options.idle_timeout = config.idle_timeout;
  options.write_timeout = config.write_timeout;
  return options;
}

struct RouterCredentials {
  rpc::Credentials workers;
  std::shared_ptr<grpc::ServerCredentials> api = rpc::Credentials().server;
};

absl::StatusOr<RouterCredentials> LoadCredentials(const RouterConfig& config) {
  RouterCredentials credentials;
  BATON_ASSIGN_OR_RETURN(credentials.workers, rpc::LoadCredentials(config.tls));
  const auto& [certificate, key, ca] = config.api_tls;
  if (certificate.empty() != key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("api-tls-cert-file is '", certificate,
                                                   "' and api-tls-key-file '", key,
                                                   "': give both or neither"));
  }
  if (!certificate.empty()) {
    BATON_ASSIGN_OR_RETURN(credentials.api, rpc::LoadServerCredentials(config.api_tls));
  }
  return credentials;
}

std::string WithPort(const std::string& listen, int port) {
  return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
}

}  // namespace

// Members are destroyed from the last to the first: front ends before what they call.
struct Router::Impl {
  Impl(const RouterConfig& config, ServedModel loaded, std::unique_ptr<Scorer> scorer,
       std::unique_ptr<ApiKeys> api_keys, const RouterCredentials& credentials)
      : config(config),
        credentials(credentials),
        keys(std::move(api_keys)),
        model(std::move(loaded)),
        metrics("router"),
        router_metrics(metrics, config.policy),
        scorer(std::move(scorer)),
        registry({.tokenizer_hash = model.tokenizer.hash(),
                  .prefill_is_split = !config.prefill_workers.empty()}),
        health(metrics.AddReader(
            [this](GaugeWriter& gauges) { WriteWorkerHealth(*registry.Current(), gauges); })),
        service(&model, &environment,
                {.max_concurrent_requests = config.max_concurrent_requests,
                 .request_timeout = config.request_timeout,
                 .max_prompt_tokens = static_cast<size_t>(config.max_prompt_tokens),
                 .max_logprobs_bytes = config.max_logprobs_bytes}),
        decode_client(credentials.workers),
        api(&service, &router_metrics, keys.get()),
        inference(&service, config.http_threads, config.max_concurrent_requests, keys.get()) {
    environment.registry = &registry;
    environment.scorer = this->scorer.get();
    environment.decode = &decode_client;
    environment.metrics = &router_metrics;
    environment.clock = &Clock::Real();
    environment.max_attempts = config.max_attempts;
  }

  absl::Status Serve();

  const RouterConfig config;
  const RouterCredentials credentials;
  const std::unique_ptr<ApiKeys> keys;  // null: everybody may ask
  const ServedModel model;
  Metrics metrics;
  RouterMetrics router_metrics;
  const std::unique_ptr<Scorer> scorer;
  Registry registry;
  const Metrics::Reader health;
  SystemResolver resolver;
  GenerationEnvironment environment;
  GenerationService service;
  GrpcDecodeClient decode_client;
  OpenAiApi api;
  InferenceService inference;
  std::unique_ptr<Membership> membership;
  std::unique_ptr<WorkerPoller> poller;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<rpc::GrpcServer> grpc;
  std::unique_ptr<Ticker> grpc_health;
};

absl::Status Router::Impl::Serve() {
  BATON_ASSIGN_OR_RETURN(std::vector<ListedWorkers> listed, WorkersOf(config));
  membership = std::make_unique<Membership>(&registry, std::move(listed), &resolver,
                                            config.resolve_interval);
  membership->WaitFirstLookups(kFirstPollTime);
  poller = std::make_unique<WorkerPoller>(
      &registry, WorkerPoller::Options{.credentials = credentials.workers});
  registry.WaitFirstPolls(kFirstPollTime);
  BATON_RETURN_IF_ERROR(metrics.Serve(config.metrics_listen)) << "metrics-listen";
  const bool served = HasRoute(*registry.Current());
  auto grpc_front = rpc::GrpcServer::Start(
      {.listen = config.grpc_listen,
       .services = {&inference},
       .service_names = {"baton.v1.Inference"},
       .serving = served,
       .max_buffered_bytes = std::max(config.max_buffered_bytes, kLeastGrpcBytes),
       .credentials = credentials.api});
  BATON_RETURN_IF_ERROR(grpc_front.status()) << "grpc-listen";
  grpc = *std::move(grpc_front);
  // As /health: serving only if a request that came now would find workers.
  grpc_health = std::make_unique<Ticker>(kHealthPeriod, [this, was = served]() mutable {
    const bool is = HasRoute(*registry.Current());
    if (is != std::exchange(was, is)) grpc->SetServing(is);
  });
  auto http_front = HttpServer::Start(HttpOptionsOf(config), &api, &router_metrics.http_connections,
                                      &router_metrics.http_tls_failures);
  BATON_RETURN_IF_ERROR(http_front.status()) << "listen";
  http = *std::move(http_front);
  return absl::OkStatus();
}

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Router::~Router() { Drain(std::chrono::nanoseconds::zero()); }

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterConfig& config) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Scorer> scorer, MakeScorer(config.policy));
  if (config.max_buffered_bytes < config.max_body_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max-buffered-bytes is ", config.max_buffered_bytes,
                     ", less than the max-body-bytes of ", config.max_body_bytes));
  }
  BATON_ASSIGN_OR_RETURN(const RouterCredentials credentials, LoadCredentials(config));
  std::unique_ptr<ApiKeys> keys;
  if (!config.api_keys_file.empty()) {
    BATON_ASSIGN_OR_RETURN(keys, ApiKeys::Load(config.api_keys_file));
  }
  EnsureOpenFiles(2 * config.max_connections + kOtherFiles);
  BATON_ASSIGN_OR_RETURN(ServedModel model, ServedModel::Load(config.model_dir, config.model_name));
  std::unique_ptr<Router> router(new Router(std::make_unique<Impl>(
      config, std::move(model), std::move(scorer), std::move(keys), credentials)));
  BATON_RETURN_IF_ERROR(router->impl_->Serve());
  if (!config.tls.files.empty() && config.api_tls.empty()) {
    spdlog::warn("workers are met under TLS, clients in plain text: there is no api-tls-cert-file");
  }
  spdlog::info("serving {}: {} prefill and {} decode workers are listed, policy {}",
               router->impl_->model.name, config.prefill_workers.size(),
               config.decode_workers.size(), config.policy);
  return router;
}

Router::Ports Router::ports() const {
  return {
      .http = impl_->http->port(), .grpc = impl_->grpc->port(), .metrics = impl_->metrics.port()};
}

std::string Router::ListeningLine() const {
  const auto [http, grpc, metrics] = ports();
  return absl::StrCat("listening http=", WithPort(impl_->config.listen, http),
                      " grpc=", WithPort(impl_->config.grpc_listen, grpc),
                      " metrics=", WithPort(impl_->config.metrics_listen, metrics));
}

bool Router::Drain(std::chrono::nanoseconds timeout) {
  Impl& impl = *impl_;
  impl.service.Close();
  impl.grpc_health.reset();
  if (impl.grpc != nullptr) impl.grpc->SetServing(false);
  if (impl.http != nullptr) impl.http->Drain();
  const bool finished = impl.service.WaitEmpty(timeout);
  if (!finished) {
    spdlog::warn("{} requests did not finish in time and are cancelled", impl.service.running());
    impl.service.CancelAll(absl::UnavailableError("the router is shutting down"));
    impl.service.WaitEmpty(kFlushTime);
  }
  if (impl.http != nullptr) impl.http->Shutdown(kFlushTime);
  if (impl.grpc != nullptr) impl.grpc->Shutdown(kFlushTime);
  return finished;
}

}  // namespace baton::router
