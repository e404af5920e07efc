#include "prefill/worker.h"

#include <algorithm>
#include <optional>

#include "common/status_macros.h"
#include "prefill/prefiller.h"
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

class PrefillRole final : public worker::Role {
 public:
  explicit PrefillRole(const PrefillConfig& config) : config_(config) {}

  v1::WorkerRole kind() const override { return v1::WORKER_ROLE_PREFILL; }

  absl::StatusOr<Services> Open(const worker::Surroundings& surroundings) override {
    surroundings_.emplace(surroundings);
    BATON_ASSIGN_OR_RETURN(
        transports_,
        Transports::Make(config_.transports, surroundings.frame_faults, surroundings.credentials));
    return Services{.services = {&service_}, .names = {"baton.v1.Prefill"}};
  }

  void Begin(const worker::Loaded& loaded) override {
    prefiller_.emplace(
        MakeOptions(config_, loaded.engine.geometry().options, surroundings_->incarnation),
        loaded.engine, transports_->sender(), surroundings_->metrics);
    service_.Begin({.incarnation = surroundings_->incarnation,
                    .semantics_hash = kvtransfer::SemanticsHash(loaded.manifest),
                    .transports = config_.transports,
                    .faults = surroundings_->control_faults},
                   *prefiller_);
  }

  WorkerLoad load() const override { return prefiller_->load(); }
  void Tick() override { prefiller_->Tick(); }
  absl::Status TryTransport(const std::string& transport, const v1::WorkerRef& peer) override {
    return transports_->Probe(transport, peer.incarnation(), peer.address());
  }

  bool Drain(Clock::Duration timeout) override { return prefiller_->Drain(timeout); }
  void Stop(const absl::Status& why) override {
    if (prefiller_) prefiller_->Stop(why);
  }

 private:
  // Destroyed from the last to the first: who calls goes before who is called.
  const PrefillConfig config_;
  std::optional<const worker::Surroundings> surroundings_;  // since Open
  std::unique_ptr<Transports> transports_;                  // since Open
  std::optional<Prefiller> prefiller_;                      // since Begin
  PrefillService service_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<worker::Worker>> StartPrefillWorker(const PrefillConfig& config) {
  return worker::Worker::Start(config, std::make_unique<PrefillRole>(config));
}

}  // namespace baton::prefill
