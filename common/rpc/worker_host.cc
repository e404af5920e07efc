#include "common/rpc/worker_host.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/bounded_queue.h"
#include "common/host_port.h"
#include "common/mutex.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "common/ticker.h"

namespace baton::rpc {
namespace {

constexpr std::chrono::milliseconds kTickPeriod{250};

// Of their own: while a transport is tried, gRPC's threads may have its messages to deliver. Two,
// so that a peer that takes its time holds up nobody; the queue is as long as a large cluster.
constexpr int kHandshakeThreads = 2;
constexpr size_t kQueuedHandshakes = 64;

v1::WorkerLoad ToProto(const WorkerLoad& load) {
  v1::WorkerLoad proto;
  proto.set_running_requests(static_cast<uint32_t>(load.running));
  proto.set_queued_requests(static_cast<uint32_t>(load.waiting));
  proto.set_queued_tokens(static_cast<uint64_t>(load.waiting_tokens));
  proto.set_pages_total(static_cast<uint64_t>(load.cache.pages_total));
  // The prefix cache gives its pages up as soon as they are wanted.
  proto.set_pages_free(static_cast<uint64_t>(load.cache.pages_free + load.cache.pages_prefix));
  return proto;
}

// host of "host:port"; brackets of IPv6 stay.
absl::StatusOr<std::string> HostOf(absl::string_view flag, absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is \"", address, "\"; expected host:port"));
  }
  return std::string(address.substr(0, colon));
}

bool IsAnyAddress(absl::string_view host) {
  return host == "0.0.0.0" || host == "[::]" || host == "*";
}

}  // namespace

void BindWorkerHost(WorkerHostConfig& config, ConfigParser& parser) {
  parser.Group("Network");
  const auto nothing_or_address = [](const std::string& text) {
    return text.empty() || IsHostPort(text);
  };
  parser.Add("listen", &config.listen, "host:port to serve gRPC on; port 0 picks one")
      .Format("host:port", IsHostPort);
  parser
      .Add("advertise", &config.advertise,
           "host:port at which other processes reach this one; default: the address listened on")
      .Format("host:port or nothing", nothing_or_address);
  parser
      .Add("metrics-listen", &config.metrics_listen,
           "host:port to serve Prometheus metrics on; port 0 picks one, empty: not served")
      .Format("host:port or nothing", nothing_or_address);
  BindClusterTls(config.tls, parser);
  parser.Group("Process");
  parser.Add("log-level", &config.log_level, "how much is logged to stderr")
      .OneOf({"trace", "debug", "info", "warning", "error", "off"});
  parser.Add("drain-timeout", &config.drain_timeout,
             "how long SIGTERM waits for requests that run before it cancels them");
}

struct WorkerHost::Impl final : public v1::WorkerControl::CallbackService {
  Impl(const WorkerHostConfig& config, std::string role_name)
      : config(config), registry(std::move(role_name)), metrics(registry) {}

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::GetInfoRequest* /*request*/,
                                    v1::GetInfoResponse* response) override {
    *response = role.info;
    *response->mutable_self() = Self();
    response->set_metrics_address(MetricsAddress());
    response->set_ready(ready);
    *response->mutable_load() = ToProto(role.load());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Handshake(grpc::CallbackServerContext* context,
                                      const v1::HandshakeRequest* request,
                                      v1::HandshakeResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (!handshakes.TryPush({context, request, response, reactor})) {
      const absl::Status full = absl::ResourceExhaustedError(
          absl::StrCat(kQueuedHandshakes, " handshakes wait for this worker already"));
      metrics.handshakes[OutcomeOf(full)].Increment();
      reactor->Finish(ToGrpc(full));
    }
    return reactor;
  }

  void AnswerHandshakes() {
    while (const auto asked = handshakes.Pop()) {
      // Nobody waits for a trial any more whose caller has given up in line.
      asked->reactor->Finish(asked->context->IsCancelled()
                                 ? grpc::Status::CANCELLED
                                 : ToGrpc(Answer(*asked->request, asked->response)));
    }
  }

  absl::Status Answer(const v1::HandshakeRequest& request, v1::HandshakeResponse* response) {
    absl::StatusOr<v1::HandshakeResponse> answer = role.handshake(request);
    metrics.handshakes[OutcomeOf(answer.status())].Increment();
    if (!answer.ok()) return answer.status();
    *response = *std::move(answer);
    *response->mutable_self() = Self();
    return absl::OkStatus();
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* /*request*/,
                                  v1::DrainResponse* /*response*/) override {
    SetNotReady();
    role.on_drain();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  v1::WorkerRef Self() const {
    v1::WorkerRef self;
    self.set_incarnation(incarnation);
    MutexLock lock(mutex);
    self.set_address(address);
    return self;
  }

  // Where others find the metrics: at the host they know this worker by if every address is
  // listened on.
  std::string MetricsAddress() const {
    if (metrics_host.empty()) return "";
    const absl::StatusOr<std::string> known = HostOf("advertise", Self().address());
    const bool any = IsAnyAddress(metrics_host) && known.ok();
    return absl::StrCat(any ? *known : metrics_host, ":", registry.port());
  }

  void SetNotReady() {
    MutexLock lock(mutex);
    ready = false;
    if (server != nullptr) server->SetServing(false);
  }

  const WorkerHostConfig config;
  Metrics registry;
  WorkerMetrics metrics;
  const Incarnation incarnation = NewIncarnation();
  Role role;
  std::string metrics_host;
  std::atomic<bool> ready{false};  // changes under the mutex

  struct AskedHandshake {
    grpc::CallbackServerContext* context;
    const v1::HandshakeRequest* request;
    v1::HandshakeResponse* response;
    grpc::ServerUnaryReactor* reactor;
  };
  BoundedQueue<AskedHandshake> handshakes{kQueuedHandshakes};
  mutable Mutex mutex;
  std::string address ABSL_GUARDED_BY(mutex);  // empty until bound
  std::unique_ptr<GrpcServer> server ABSL_GUARDED_BY(mutex);

  // Call the role: gone before it.
  Metrics::Reader occupancy;
  Metrics::Reader requests;
  std::unique_ptr<Ticker> ticker;
  std::vector<std::jthread> handshake_threads;
};

WorkerHost::WorkerHost(const WorkerHostConfig& config, std::string role)
    : impl_(std::make_unique<Impl>(config, std::move(role))) {}

WorkerHost::~WorkerHost() { Shutdown(std::chrono::nanoseconds(0)); }

Incarnation WorkerHost::incarnation() const { return impl_->incarnation; }
Metrics& WorkerHost::registry() { return impl_->registry; }
WorkerMetrics& WorkerHost::metrics() { return impl_->metrics; }
WorkerLoad WorkerHost::load() const { return impl_->role.load(); }

absl::Status WorkerHost::Start(Role role) {
  Impl& host = *impl_;
  BATON_ASSIGN_OR_RETURN(std::string listen_host, HostOf("listen", host.config.listen));
  if (host.config.advertise.empty() && IsAnyAddress(listen_host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen is ", host.config.listen,
                     ", which other processes cannot connect to: set advertise to host:port"));
  }
  if (!host.config.metrics_listen.empty()) {
    BATON_ASSIGN_OR_RETURN(host.metrics_host, HostOf("metrics-listen", host.config.metrics_listen));
    BATON_RETURN_IF_ERROR(host.registry.Serve(host.config.metrics_listen)) << "metrics-listen";
  }

  host.role = std::move(role);
  host.occupancy = host.metrics.ExportOccupancy([&host] { return host.role.load().cache; });
  host.requests = host.metrics.ExportRequests([&host] {
    const WorkerLoad load = host.role.load();
    return WorkerMetrics::RequestCounts{.running = load.running, .waiting = load.waiting};
  });
  host.ticker = std::make_unique<Ticker>(kTickPeriod, host.role.on_tick);
  for (int i = 0; i < kHandshakeThreads; ++i) {
    host.handshake_threads.emplace_back([&host] { host.AnswerHandshakes(); });
  }
  ServerOptions options;
  options.listen = host.config.listen;
  options.services = host.role.services;
  options.services.push_back(&host);
  options.service_names = host.role.service_names;
  options.service_names.push_back("baton.v1.WorkerControl");
  options.serving = false;
  options.credentials = host.role.credentials;
  // Who calls before the address is known waits for it, and finds this worker ready.
  MutexLock lock(host.mutex);
  BATON_ASSIGN_OR_RETURN(host.server, GrpcServer::Start(options));
  host.address = host.config.advertise.empty() ? absl::StrCat(listen_host, ":", host.server->port())
                                               : host.config.advertise;
  host.server->SetServing(true);
  host.ready = true;
  return absl::OkStatus();
}

v1::WorkerRef WorkerHost::self() const { return impl_->Self(); }

std::string WorkerHost::ListeningLine() const {
  return absl::StrFormat("listening grpc=%s metrics=%s:%d incarnation=%016x", self().address(),
                         impl_->metrics_host, impl_->registry.port(), impl_->incarnation);
}

void WorkerHost::SetNotReady() { impl_->SetNotReady(); }

void WorkerHost::Shutdown(std::chrono::nanoseconds grace) {
  impl_->ticker.reset();
  GrpcServer* server = nullptr;
  {
    MutexLock lock(impl_->mutex);
    server = impl_->server.get();
  }
  // Without the lock: handlers that run until then may need it.
  if (server != nullptr) server->Shutdown(grace);
  impl_->handshakes.Close();  // the server has waited for those in line
  impl_->handshake_threads.clear();
  impl_->occupancy = Metrics::Reader();
  impl_->requests = Metrics::Reader();
}

}  // namespace baton::rpc
