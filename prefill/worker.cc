#include "prefill/worker.h"

#include <algorithm>
#include <utility>

#include "common/rpc/worker_host.h"
#include "common/status_macros.h"
#include "engine/cache_description.h"
#include "engine/model_identity.h"
#include "engine/options_config.h"
#include "kvtransfer/fault/control_faults.h"
#include "kvtransfer/grpc/handshake.h"
#include "kvtransfer/manifest.h"
#include "kvtransfer/sender.h"
#include "prefill/service.h"
#include "prefill/transports.h"

namespace baton::prefill {
namespace {

PrefillerOptions MakeOptions(const PrefillConfig& config, const engine::CacheOptions& cache,
                             Incarnation incarnation) {
  PrefillerOptions options;
  options.start.queue = static_cast<size_t>(config.queue_limit);
  options.start.ungranted_pages = std::max<int64_t>(1, cache.pages * config.max_ungranted / 100);
  options.start.ungranted_sequences = std::max(1, cache.slots * config.max_ungranted / 100);
  options.chunks = engine::MakeChunkLimits(config.engine);
  options.incarnation = incarnation;
  options.grant_timeout = config.grant_timeout;
  options.handoff_timeout = config.handoff_timeout;
  return options;
}

}  // namespace

// Members are destroyed from the last to the first: who calls goes before who is called.
struct PrefillWorker::Impl {
  Impl(const PrefillConfig& config, const kvtransfer::FaultPlanFile& faults,
       std::unique_ptr<Transports> made, std::unique_ptr<engine::Engine> loaded,
       const engine::ModelIdentity& identity)
      : engine(std::move(loaded)),
        manifest(
            kvtransfer::MakeManifest(engine::DescribeCache(*engine, identity), config.transports)),
        host(config.host, "prefill"),
        control_faults(kvtransfer::ControlFaults::Make(faults.control)),
        transports(std::move(made)),
        prefiller(MakeOptions(config, engine->geometry().options, host.incarnation()), *engine,
                  transports->sender(), host.metrics()),
        service({.incarnation = host.incarnation(),
                 .semantics_hash = kvtransfer::SemanticsHash(manifest),
                 .transports = config.transports,
                 .faults = control_faults.get()},
                prefiller) {}

  rpc::WorkerHost::Role MakeRole(const engine::ModelIdentity& identity);

  const std::unique_ptr<engine::Engine> engine;
  const kvtransfer::Manifest manifest;
  rpc::WorkerHost host;
  const std::unique_ptr<kvtransfer::ControlFaults> control_faults;  // null without a plan
  const std::unique_ptr<Transports> transports;
  Prefiller prefiller;
  PrefillService service;
  bool stopped = false;
};

rpc::WorkerHost::Role PrefillWorker::Impl::MakeRole(const engine::ModelIdentity& identity) {
  rpc::WorkerHost::Role role;
  role.info.set_role(v1::WORKER_ROLE_PREFILL);
  role.info.set_model(identity.name);
  role.info.set_semantics_hash(kvtransfer::SemanticsHash(manifest));
  role.info.set_tokenizer_hash(identity.tokenizer_hash);
  role.info.set_max_context_tokens(static_cast<uint32_t>(engine->max_sequence_tokens()));
  role.load = [this] { return prefiller.load(); };
  role.on_tick = [this] { prefiller.Tick(); };
  role.handshake = [this](const v1::HandshakeRequest& request) {
    absl::StatusOr<v1::HandshakeResponse> answer =
        kvtransfer::AnswerHandshake(manifest, request, [&](const std::string& transport) {
          return transports->Probe(transport, request.caller().incarnation(),
                                   request.caller().address());
        });
    if (answer.ok()) kvtransfer::CountTransports(*answer, host.metrics());
    return answer;
  };
  role.on_drain = [this] { prefiller.Drain(Clock::Duration(0)); };
  role.services = {&service};
  role.service_names = {"baton.v1.Prefill"};
  return role;
}

PrefillWorker::PrefillWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PrefillWorker::~PrefillWorker() { Stop(); }

absl::StatusOr<std::unique_ptr<PrefillWorker>> PrefillWorker::Start(const PrefillConfig& config) {
  BATON_ASSIGN_OR_RETURN(const rpc::Credentials credentials, rpc::LoadCredentials(config.host.tls));
  BATON_ASSIGN_OR_RETURN(const kvtransfer::FaultPlanFile faults,
                         kvtransfer::LoadFaults(config.faults));
  BATON_ASSIGN_OR_RETURN(
      std::unique_ptr<Transports> transports,
      Transports::Make(config.transports, config.engine.device, faults.frames, credentials));
  BATON_ASSIGN_OR_RETURN(const engine::EngineOptions options,
                         engine::MakeEngineOptions(config.engine));
  BATON_ASSIGN_OR_RETURN(const engine::ModelIdentity identity,
                         engine::ReadModelIdentity(options.model_dir));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, engine::Engine::Create(options));
  auto impl =
      std::make_unique<Impl>(config, faults, std::move(transports), std::move(engine), identity);
  Impl* worker = impl.get();
  std::unique_ptr<PrefillWorker> started(new PrefillWorker(std::move(impl)));
  rpc::WorkerHost::Role role = worker->MakeRole(identity);
  role.credentials = credentials.server;
  BATON_RETURN_IF_ERROR(worker->host.Start(std::move(role)));
  return started;
}

std::string PrefillWorker::address() const { return impl_->host.self().address(); }
std::string PrefillWorker::ListeningLine() const { return impl_->host.ListeningLine(); }
WorkerLoad PrefillWorker::load() const { return impl_->host.load(); }
const Metrics& PrefillWorker::metrics() const { return impl_->host.registry(); }
absl::Status PrefillWorker::AuditCache() const { return impl_->engine->AuditCache(); }

bool PrefillWorker::Drain(Clock::Duration timeout) {
  const auto since = std::chrono::steady_clock::now();
  impl_->host.SetNotReady();
  // A rank goes on for the others' sake until they, too, are drained.
  return impl_->prefiller.Drain(timeout) &&
         impl_->engine->LeaveGroup(timeout - (std::chrono::steady_clock::now() - since));
}

void PrefillWorker::Stop() {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->host.SetNotReady();
  impl_->prefiller.Stop(absl::UnavailableError("the prefill worker shuts down"));
  impl_->host.Shutdown(std::chrono::seconds(1));  // for the statuses of what was ended
}

}  // namespace baton::prefill
