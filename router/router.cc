#include "router/router.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/host_port.h"
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
// A client's gRPC says that something was taken once it is much of a window of 64 KiB: to one that
// reads its answer aloud, that is more than a minute.
constexpr int kGrpcPatience = 10;  // write timeouts

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

// What is looked at before anything else: a mistake in the configuration shows here.
struct Prepared {
  std::unique_ptr<Scorer> scorer;
  std::vector<ListedWorkers> listed;
  rpc::Credentials workers;
  std::shared_ptr<grpc::ServerCredentials> clients = rpc::Credentials().server;
  std::unique_ptr<ApiKeys> keys;  // null: everybody may ask
};

absl::StatusOr<Prepared> Prepare(const RouterConfig& config) {
  ErrorList errors;
  CheckRouterConfig(config, errors);
  BATON_RETURN_IF_ERROR(errors.ToStatus());
  Prepared prepared;
  BATON_ASSIGN_OR_RETURN(prepared.scorer, MakeScorer(config.policy));
  BATON_ASSIGN_OR_RETURN(prepared.listed, WorkersOf(config));
  BATON_ASSIGN_OR_RETURN(prepared.workers, rpc::LoadCredentials(config.tls));
  if (!config.api_tls.certificate.empty()) {
    BATON_ASSIGN_OR_RETURN(prepared.clients, rpc::LoadServerCredentials(config.api_tls));
  }
  if (!config.api_keys_file.empty()) {
    BATON_ASSIGN_OR_RETURN(prepared.keys, ApiKeys::Load(config.api_keys_file));
  }
  return prepared;
}

// What serves requests, once the model is there. Members are destroyed from the last to the first:
// who calls before who is called.
struct Backend {
  Backend(const RouterConfig& config, const Prepared& prepared, Metrics& metrics,
          RouterMetrics& router_metrics, ServedModel loaded)
      : model(std::move(loaded)),
        registry({.tokenizer_hash = model.tokenizer.hash(),
                  .prefill_is_split = !config.prefill_workers.empty()}),
        health(metrics.AddReader(
            [this](GaugeWriter& gauges) { WriteWorkerHealth(*registry.Current(), gauges); })),
        decode_client(prepared.workers),
        environment{.registry = &registry,
                    .scorer = prepared.scorer.get(),
                    .decode = &decode_client,
                    .metrics = &router_metrics,
                    .clock = &Clock::Real(),
                    .max_attempts = config.max_attempts},
        service(&model, &environment,
                {.max_concurrent_requests = config.max_concurrent_requests,
                 .request_timeout = config.request_timeout,
                 .max_prompt_tokens = static_cast<size_t>(config.max_prompt_tokens),
                 .max_logprobs_bytes = config.max_logprobs_bytes}),
        membership(&registry, prepared.listed, &resolver, config.resolve_interval) {
    membership.WaitFirstLookups(kFirstPollTime);
    poller.emplace(&registry, WorkerPoller::Options{.credentials = prepared.workers});
    registry.WaitFirstPolls(kFirstPollTime);
  }

  const ServedModel model;
  Registry registry;
  const Metrics::Reader health;
  SystemResolver resolver;
  GrpcDecodeClient decode_client;
  GenerationEnvironment environment;
  GenerationService service;
  Membership membership;
  std::optional<WorkerPoller> poller;  // from the first lookups on
};

}  // namespace

// Front ends are destroyed before what they call.
struct Router::Impl {
  Impl(const RouterConfig& config, Prepared all_prepared)
      : config(config),
        prepared(std::move(all_prepared)),
        metrics("router"),
        router_metrics(metrics, config.policy),
        api(&router_metrics, prepared.keys.get()),
        inference(&router_metrics,
                  {.threads = config.http_threads,
                   .max_waiting = config.max_concurrent_requests,
                   .max_waiting_bytes = std::max(config.max_buffered_bytes, kLeastGrpcBytes),
                   .message_timeout = config.body_timeout,
                   .max_unread_bytes = config.max_unread_bytes,
                   .write_timeout = kGrpcPatience * config.write_timeout},
                  prepared.keys.get()) {}

  absl::Status Listen();
  void Begin(ServedModel model);

  const RouterConfig config;
  const Prepared prepared;
  Metrics metrics;
  RouterMetrics router_metrics;
  std::unique_ptr<Backend> backend;  // null until the model is loaded
  OpenAiApi api;
  InferenceService inference;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<rpc::GrpcServer> grpc;
  std::unique_ptr<Ticker> grpc_health;
};

// Binds all ports. Whoever asks is told that the router is still starting.
absl::Status Router::Impl::Listen() {
  BATON_RETURN_IF_ERROR(metrics.Serve(config.metrics_listen)) << "metrics-listen";
  auto grpc_front = rpc::GrpcServer::Start(
      {.listen = config.grpc_listen,
       .services = {&inference},
       .service_names = {"baton.v1.Inference"},
       .serving = false,
       .max_buffered_bytes = std::max(config.max_buffered_bytes, kLeastGrpcBytes),
       .credentials = prepared.clients});
  BATON_RETURN_IF_ERROR(grpc_front.status()) << "grpc-listen";
  grpc = *std::move(grpc_front);
  auto http_front = HttpServer::Start(HttpOptionsOf(config), &api, &router_metrics.http_connections,
                                      &router_metrics.http_tls_failures);
  BATON_RETURN_IF_ERROR(http_front.status()) << "listen";
  http = *std::move(http_front);
  return absl::OkStatus();
}

void Router::Impl::Begin(ServedModel model) {
  backend = std::make_unique<Backend>(config, prepared, metrics, router_metrics, std::move(model));
  api.Begin(&backend->service);
  inference.Begin(&backend->service);
  // As /health: serving only if a request that came now would find workers.
  auto follow = [this, was = false]() mutable {
    const bool is = HasRoute(*backend->registry.Current());
    if (is != std::exchange(was, is)) grpc->SetServing(is);
  };
  follow();
  grpc_health = std::make_unique<Ticker>(kHealthPeriod, follow);
}

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Router::~Router() { Drain(std::chrono::nanoseconds::zero()); }

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterConfig& config) {
  return Start(config, [&] { return ServedModel::Load(config.model_dir, config.model_name); });
}

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterConfig& config,
                                                      const ModelLoader& load) {
  BATON_ASSIGN_OR_RETURN(Prepared prepared, Prepare(config));
  EnsureOpenFiles(2 * config.max_connections + kOtherFiles);
  std::unique_ptr<Router> router(new Router(std::make_unique<Impl>(config, std::move(prepared))));
  BATON_RETURN_IF_ERROR(router->impl_->Listen());
  BATON_ASSIGN_OR_RETURN(ServedModel model, load());
  router->impl_->Begin(std::move(model));
  if (!config.tls.files.empty() && config.api_tls.empty()) {
    spdlog::warn("workers are met under TLS, clients in plain text: there is no api-tls-cert-file");
  }
  spdlog::info("serving {}: {} prefill and {} decode workers are listed, policy {}",
               router->impl_->backend->model.name, config.prefill_workers.size(),
               config.decode_workers.size(), config.policy);
  return router;
}

void Router::Inspect(const RouterConfig& config, ErrorList& errors) {
  errors.Add(rpc::LoadCredentials(config.tls).status());
  if (!config.api_tls.certificate.empty() && !config.api_tls.key.empty()) {
    errors.Add(rpc::LoadServerCredentials(config.api_tls).status());
  }
  if (!config.api_keys_file.empty()) errors.Add(ApiKeys::Load(config.api_keys_file).status());
  if (config.model_dir.empty()) return;  // which has been told
  errors.Add(ServedModel::Load(config.model_dir, config.model_name).status());
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
  if (impl.backend != nullptr) impl.backend->service.Close();
  impl.grpc_health.reset();
  if (impl.grpc != nullptr) impl.grpc->SetServing(false);
  if (impl.http != nullptr) impl.http->Drain();
  const bool finished = impl.backend == nullptr || impl.backend->service.WaitEmpty(timeout);
  if (!finished) {
    GenerationService& service = impl.backend->service;
    spdlog::warn("{} requests did not finish in time and are cancelled", service.running());
    service.CancelAll(absl::UnavailableError("the router is shutting down"));
    service.WaitEmpty(kFlushTime);
  }
  if (impl.http != nullptr) impl.http->Shutdown(kFlushTime);
  if (impl.grpc != nullptr) impl.grpc->Shutdown(kFlushTime);
  return finished;
}

}  // namespace baton::router
