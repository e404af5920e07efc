#include "decode/worker.h"

#include <optional>

#include "common/status_macros.h"
#include "decode/decoder.h"
#include "decode/grpc_prefill_client.h"
#include "decode/service.h"
#include "decode/transports.h"
#include "kvtransfer/executor.h"
#include "kvtransfer/fault/fault_receiver.h"
#include "kvtransfer/grpc/transfer_service.h"
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

class DecodeRole final : public worker::Role {
 public:
  explicit DecodeRole(const DecodeConfig& config) : config_(config) {}

  v1::WorkerRole kind() const override { return v1::WORKER_ROLE_DECODE; }

  absl::StatusOr<Services> Open(const worker::Surroundings& surroundings) override {
    surroundings_.emplace(surroundings);
    BATON_RETURN_IF_ERROR(kvtransfer::CheckReceiverFaults(surroundings.frame_faults))
        << config_.faults.fault_plan;
    receiver_ = kvtransfer::WithFaults(kvtransfer::MakeReceiver(&transfer_thread_),
                                       surroundings.frame_faults);
    transfer_service_.emplace(receiver_.get(), &transfer_thread_);
    BATON_ASSIGN_OR_RETURN(transports_,
                           Transports::Start(config_.transports, receiver_.get(),
                                             surroundings.incarnation, &*transfer_service_));
    return Services{.services = {&service_, transfer_service_->service()},
                    .names = {"baton.v1.Decode", "baton.v1.Transfer"}};
  }

  void Begin(const worker::Loaded& loaded) override {
    WorkerMetrics& metrics = surroundings_->metrics;
    prefill_client_.emplace(loaded.manifest, loaded.self, metrics, surroundings_->credentials,
                            surroundings_->control_faults);
    decoder_.emplace(MakeOptions(config_, surroundings_->incarnation), loaded.engine, *receiver_,
                     *prefill_client_, metrics);
    service_.Begin(*decoder_, loaded.self);
  }

  WorkerLoad load() const override { return decoder_->load(); }
  void Tick() override {
    decoder_->Tick();
    prefill_client_->DropDeadLinks(kDeadLinkTime);
  }
  // Senders try; a receiver takes what comes.
  absl::Status TryTransport(const std::string& /*transport*/,
                            const v1::WorkerRef& /*peer*/) override {
    return absl::OkStatus();
  }

  bool Drain(Clock::Duration timeout) override { return decoder_->Drain(timeout); }
  void Stop(const absl::Status& why) override {
    if (decoder_) decoder_->Stop(why);
    if (transfer_service_) transfer_service_->Stop();
    transports_.reset();
  }

 private:
  // Destroyed from the last to the first: who calls goes before who is called.
  const DecodeConfig config_;
  kvtransfer::TransferThread transfer_thread_;
  // Since Open.
  std::optional<const worker::Surroundings> surroundings_;
  std::unique_ptr<kvtransfer::Receiver> receiver_;
  std::optional<kvtransfer::TransferService> transfer_service_;
  std::unique_ptr<Transports> transports_;
  // Since Begin.
  std::optional<GrpcPrefillClient> prefill_client_;
  std::optional<Decoder> decoder_;
  DecodeService service_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<worker::Worker>> StartDecodeWorker(const DecodeConfig& config) {
  return worker::Worker::Start(config, std::make_unique<DecodeRole>(config));
}

}  // namespace baton::decode
