#include "worker/worker.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/host_port.h"
#include "common/mutex.h"
#include "common/rpc/request_protocol.h"
#include "common/rpc/server.h"
#include "common/status_macros.h"
#include "common/ticker.h"
#include "engine/cache_description.h"
#include "engine/model_identity.h"
#include "kvtransfer/grpc/handshake.h"
#include "spdlog/spdlog.h"
#include "worker/control_service.h"

namespace baton::worker {
namespace {

constexpr std::chrono::milliseconds kTickPeriod{250};

std::string NameOf(v1::WorkerRole kind) {
  return kind == v1::WORKER_ROLE_PREFILL ? "prefill" : "decode";
}

}  // namespace

// Members are destroyed from the last to the first: who calls goes before who is called.
struct Worker::Impl {
  Impl(const WorkerConfig& worker_config, std::unique_ptr<Role> worker_role)
      : config(worker_config),
        registry(NameOf(worker_role->kind())),
        metrics(registry),
        role(std::move(worker_role)),
        control(*role, metrics, [this] {
          SetNotReady();
          role->Drain(Clock::Duration(0));
        }) {}

  absl::Status Start();
  absl::Status Listen(const Role::Services& services);
  void Serve(const engine::ModelIdentity& identity);
  std::string MetricsAddress() const;
  void SetNotReady();
  void Stop();

  const WorkerConfig config;
  const Incarnation incarnation = NewIncarnation();
  Metrics registry;
  WorkerMetrics metrics;
  rpc::Credentials credentials;
  kvtransfer::FaultPlanFile faults;
  std::unique_ptr<kvtransfer::ControlFaults> control_faults;  // null without a plan
  std::unique_ptr<engine::Engine> engine;                     // null until it is loaded
  kvtransfer::Manifest manifest;
  const std::unique_ptr<Role> role;
  ControlService control;

  v1::WorkerRef self;  // set by Listen
  Mutex ready_mutex;   // health and WorkerControl say the same
  std::unique_ptr<rpc::GrpcServer> server;
  Metrics::Reader occupancy;
  Metrics::Reader requests;
  std::unique_ptr<Ticker> ticker;
  bool stopped = false;
};

// What takes a look only comes before the model, which takes minutes.
absl::Status Worker::Impl::Start() {
  BATON_ASSIGN_OR_RETURN(credentials, rpc::LoadCredentials(config.tls));
  BATON_ASSIGN_OR_RETURN(faults, kvtransfer::LoadFaults(config.faults));
  control_faults = kvtransfer::ControlFaults::Make(faults.control);
  BATON_RETURN_IF_ERROR(kvtransfer::CheckTransportNames(config.transports, config.engine.device))
      << "transports";
  BATON_ASSIGN_OR_RETURN(const engine::EngineOptions options,
                         engine::MakeEngineOptions(config.engine));
  BATON_ASSIGN_OR_RETURN(const engine::ModelIdentity identity,
                         engine::ReadModelIdentity(options.model_dir));
  BATON_ASSIGN_OR_RETURN(const Role::Services services,
                         role->Open({.incarnation = incarnation,
                                     .metrics = metrics,
                                     .credentials = credentials,
                                     .frame_faults = faults.frames,
                                     .control_faults = control_faults.get()}));
  BATON_RETURN_IF_ERROR(Listen(services));

  spdlog::info("reachable at {}, not ready: loading {}", self.address(), options.model_dir);
  const Clock::TimePoint began = Clock::Real().Now();
  BATON_ASSIGN_OR_RETURN(engine, engine::Engine::Create(options));
  spdlog::info("loaded in {:.1f} s", Seconds(Clock::Real().Now() - began));
  manifest = kvtransfer::MakeManifest(engine::DescribeCache(*engine, identity), config.transports);
  role->Begin({.engine = *engine, .manifest = manifest, .self = self});
  Serve(identity);
  return absl::OkStatus();
}

// Binds both ports. Health is NOT_SERVING.
absl::Status Worker::Impl::Listen(const Role::Services& services) {
  if (!config.metrics_listen.empty()) {
    BATON_RETURN_IF_ERROR(registry.Serve(config.metrics_listen)) << "metrics-listen";
  }
  rpc::ServerOptions options;
  options.listen = config.listen;
  options.services = services.services;
  options.services.push_back(&control);
  options.service_names = services.names;
  options.service_names.push_back("baton.v1.WorkerControl");
  options.serving = false;
  options.credentials = credentials.server;
  absl::StatusOr<std::unique_ptr<rpc::GrpcServer>> listening = rpc::GrpcServer::Start(options);
  BATON_RETURN_IF_ERROR(listening.status()) << "listen";
  server = *std::move(listening);
  self.set_incarnation(incarnation);
  self.set_address(config.advertise.empty() ? WithPort(config.listen, server->port())
                                            : config.advertise);
  return absl::OkStatus();
}

// The role has begun: now everybody may know.
void Worker::Impl::Serve(const engine::ModelIdentity& identity) {
  occupancy = metrics.ExportOccupancy([this] { return role->load().cache; });
  requests = metrics.ExportRequests([this] {
    const WorkerLoad load = role->load();
    return WorkerMetrics::RequestCounts{.running = load.running, .waiting = load.waiting};
  });
  ticker = std::make_unique<Ticker>(kTickPeriod, [this] { role->Tick(); });

  v1::GetInfoResponse info;
  info.set_role(role->kind());
  *info.mutable_self() = self;
  info.set_model(identity.name);
  info.set_semantics_hash(kvtransfer::SemanticsHash(manifest));
  info.set_tokenizer_hash(identity.tokenizer_hash);
  info.set_max_context_tokens(static_cast<uint32_t>(engine->max_sequence_tokens()));
  info.set_metrics_address(MetricsAddress());
  info.set_name(config.name);
  info.set_request_protocol(rpc::kRequestProtocol);
  const v1::Manifest told = kvtransfer::ManifestToProto(manifest);
  *info.mutable_semantics() = told.semantics();
  *info.mutable_transports() = told.transports();
  MutexLock lock(ready_mutex);
  control.Begin(info, manifest);
  server->SetServing(true);
}

// Where others find the metrics: at the host they know this worker by if every address is
// listened on.
std::string Worker::Impl::MetricsAddress() const {
  if (config.metrics_listen.empty()) return "";
  const bool any = IsAnyAddress(HostPart(config.metrics_listen));
  return WithPort(any ? self.address() : config.metrics_listen, registry.port());
}

void Worker::Impl::SetNotReady() {
  MutexLock lock(ready_mutex);
  control.SetNotReady();
  if (server != nullptr) server->SetServing(false);
}

void Worker::Impl::Stop() {
  if (std::exchange(stopped, true)) return;
  SetNotReady();
  role->Stop(
      absl::UnavailableError(absl::StrCat("the ", NameOf(role->kind()), " worker shuts down")));
  ticker.reset();
  // For the statuses of what was ended.
  if (server != nullptr) server->Shutdown(std::chrono::seconds(1));
  control.Stop();
  occupancy = Metrics::Reader();
  requests = Metrics::Reader();
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Worker::~Worker() { Stop(); }

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerConfig& config,
                                                      std::unique_ptr<Role> role) {
  std::unique_ptr<Worker> worker(new Worker(std::make_unique<Impl>(config, std::move(role))));
  BATON_RETURN_IF_ERROR(worker->impl_->Start());
  return worker;
}

std::string Worker::address() const { return impl_->self.address(); }

std::string Worker::ListeningLine() const {
  const std::string& listen = impl_->config.metrics_listen;
  const std::string metrics =
      listen.empty() ? "" : absl::StrCat(" metrics=", WithPort(listen, impl_->registry.port()));
  return absl::StrFormat("listening grpc=%s%s incarnation=%016x", address(), metrics,
                         impl_->incarnation);
}

WorkerLoad Worker::load() const { return impl_->role->load(); }
const Metrics& Worker::metrics() const { return impl_->registry; }
absl::Status Worker::AuditCache() const { return impl_->engine->AuditCache(); }

bool Worker::Drain(Clock::Duration timeout) {
  const auto since = std::chrono::steady_clock::now();
  impl_->SetNotReady();
  // A rank goes on for the others' sake until they, too, are drained.
  return impl_->role->Drain(timeout) &&
         impl_->engine->LeaveGroup(timeout - (std::chrono::steady_clock::now() - since));
}

void Worker::Stop() { impl_->Stop(); }

void DrainAndStop(Worker& worker, Clock::Duration timeout) {
  const auto since = std::chrono::steady_clock::now();
  if (!worker.Drain(timeout)) {
    spdlog::warn("not drained in time: what runs is cancelled, requests: {}",
                 worker.load().running);
  }
  // Routers ask every half second: requests that meet a worker before they know must find it
  // draining, not gone, which looks like a crash.
  constexpr std::chrono::seconds kNoticed{1};
  std::this_thread::sleep_until(since + kNoticed);
  worker.Stop();
}

}  // namespace baton::worker
