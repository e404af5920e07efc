#include "decode/worker.h"

#include <utility>

#include "common/rpc/worker_host.h"
#include "common/status_macros.h"
#include "decode/grpc_prefill_client.h"
#include "decode/service.h"
#include "decode/transports.h"
#include "engine/cache_description.h"
#include "engine/model_identity.h"
#include "engine/options_config.h"
#include "kvtransfer/executor.h"
#include "kvtransfer/fault/control_faults.h"
#include "kvtransfer/fault/fault_receiver.h"
#include "kvtransfer/grpc/handshake.h"
#include "kvtransfer/grpc/transfer_service.h"
#include "kvtransfer/manifest.h"
#include "kvtransfer/receiver.h"

namespace baton::decode {
namespace {

// How long an address that nobody answers at is kept: longer than a worker takes to restart.
constexpr std::chrono::minutes kDeadLinkTime{1};

DecoderOptions MakeOptions(const DecodeConfig& config, Incarnation incarnation) {
  DecoderOptions options;
  options.admission = {.waiting = static_cast<size_t>(config.queue_limit),
                       .waiting_per_prefill = static_cast<size_t>(config.queue_limit_per_prefill)};
  options.chunks = engine::MakeChunkLimits(config.engine);
  options.incarnation = incarnation;
  options.local_prefill_tokens = config.local_prefill_tokens;
  options.growth_tokens = config.growth_tokens;
  options.accept_timeout = config.accept_timeout;
  options.queue_timeout = config.queue_timeout;
  options.handoff_timeout = config.handoff_timeout;
  return options;
}

}  // namespace

// Members are destroyed from the last to the first: who calls goes before who is called.
struct DecodeWorker::Impl {
  Impl(const DecodeConfig& config, const kvtransfer::FaultPlanFile& faults,
       std::unique_ptr<engine::Engine> loaded, const engine::ModelIdentity& identity,
       const rpc::Credentials& credentials)
      : engine(std::move(loaded)),
        manifest(
            kvtransfer::MakeManifest(engine::DescribeCache(*engine, identity), config.transports)),
        host(config.host, "decode"),
        receiver(kvtransfer::WithFaults(kvtransfer::MakeReceiver(&transfer_thread), faults.frames)),
        transfer_service(receiver.get(), &transfer_thread),
        control_faults(kvtransfer::ControlFaults::Make(faults.control)),
        prefill_client(
            manifest, [this] { return host.self(); }, host.metrics(), credentials,
            control_faults.get()),
        decoder(MakeOptions(config, host.incarnation()), *engine, *receiver, prefill_client,
                host.metrics()),
        service(decoder, [this] { return host.self(); }) {}

  rpc::WorkerHost::Role MakeRole(const engine::ModelIdentity& identity);

  const std::unique_ptr<engine::Engine> engine;
  const kvtransfer::Manifest manifest;
  rpc::WorkerHost host;
  kvtransfer::TransferThread transfer_thread;
  const std::unique_ptr<kvtransfer::Receiver> receiver;
  kvtransfer::TransferService transfer_service;
  std::unique_ptr<Transports> transports;                           // null before the start
  const std::unique_ptr<kvtransfer::ControlFaults> control_faults;  // null without a plan
  GrpcPrefillClient prefill_client;
  Decoder decoder;
  DecodeService service;
  bool stopped = false;
};

rpc::WorkerHost::Role DecodeWorker::Impl::MakeRole(const engine::ModelIdentity& identity) {
  rpc::WorkerHost::Role role;
  role.info.set_role(v1::WORKER_ROLE_DECODE);
  role.info.set_model(identity.name);
  role.info.set_semantics_hash(kvtransfer::SemanticsHash(manifest));
  role.info.set_tokenizer_hash(identity.tokenizer_hash);
  role.info.set_max_context_tokens(static_cast<uint32_t>(engine->max_sequence_tokens()));
  role.load = [this] { return decoder.load(); };
  role.on_tick = [this] {
    decoder.Tick();
    prefill_client.DropDeadLinks(kDeadLinkTime);
  };
  role.handshake = [this](const v1::HandshakeRequest& request) {
    return kvtransfer::AnswerHandshake(manifest, request,
                                       [](const std::string&) { return absl::OkStatus(); });
  };
  role.on_drain = [this] { decoder.Drain(Clock::Duration(0)); };
  role.services = {&service, transfer_service.service()};
  role.service_names = {"baton.v1.Decode", "baton.v1.Transfer"};
  return role;
}

DecodeWorker::DecodeWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DecodeWorker::~DecodeWorker() { Stop(); }

absl::StatusOr<std::unique_ptr<DecodeWorker>> DecodeWorker::Start(const DecodeConfig& config) {
  BATON_ASSIGN_OR_RETURN(const rpc::Credentials credentials, rpc::LoadCredentials(config.host.tls));
  BATON_ASSIGN_OR_RETURN(const kvtransfer::FaultPlanFile faults,
                         kvtransfer::LoadFaults(config.faults));
  BATON_RETURN_IF_ERROR(kvtransfer::CheckReceiverFaults(faults.frames)) << config.faults.fault_plan;
  BATON_RETURN_IF_ERROR(kvtransfer::CheckTransportNames(config.transports, config.engine.device))
      << "transports";
  BATON_ASSIGN_OR_RETURN(const engine::EngineOptions options,
                         engine::MakeEngineOptions(config.engine));
  BATON_ASSIGN_OR_RETURN(const engine::ModelIdentity identity,
                         engine::ReadModelIdentity(options.model_dir));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, engine::Engine::Create(options));
  auto impl = std::make_unique<Impl>(config, faults, std::move(engine), identity, credentials);
  Impl* worker = impl.get();
  std::unique_ptr<DecodeWorker> started(new DecodeWorker(std::move(impl)));
  BATON_ASSIGN_OR_RETURN(worker->transports,
                         Transports::Start(config.transports, worker->receiver.get(),
                                           worker->host.incarnation(), &worker->transfer_service));
  rpc::WorkerHost::Role role = worker->MakeRole(identity);
  role.credentials = credentials.server;
  BATON_RETURN_IF_ERROR(worker->host.Start(std::move(role)));
  return started;
}

std::string DecodeWorker::address() const { return impl_->host.self().address(); }
std::string DecodeWorker::ListeningLine() const { return impl_->host.ListeningLine(); }
WorkerLoad DecodeWorker::load() const { return impl_->host.load(); }
const Metrics& DecodeWorker::metrics() const { return impl_->host.registry(); }
absl::Status DecodeWorker::AuditCache() const { return impl_->engine->AuditCache(); }

bool DecodeWorker::Drain(Clock::Duration timeout) {
  const auto since = std::chrono::steady_clock::now();
  impl_->host.SetNotReady();
  // A rank goes on for the others' sake until they, too, are drained.
  return impl_->decoder.Drain(timeout) &&
         impl_->engine->LeaveGroup(timeout - (std::chrono::steady_clock::now() - since));
}

void DecodeWorker::Stop() {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->host.SetNotReady();
  impl_->decoder.Stop(absl::UnavailableError("the decode worker shuts down"));
  impl_->transfer_service.Stop();
  impl_->transports.reset();
  impl_->host.Shutdown(std::chrono::seconds(1));  // for the statuses of what was ended
}

}  // namespace baton::decode
