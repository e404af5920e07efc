#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/token_logprobs.h"
#include "common/clock.h"
#include "common/gate.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/worker_load.h"
#include "common/worker_metrics.h"
#include "engine/chunk_scheduler.h"
#include "engine/engine.h"
#include "engine/engine_loop.h"
#include "engine/step_metrics.h"
#include "kvtransfer/sender.h"
#include "prefill/run_state.h"
#include "prefill/start_queue.h"

// The prefill worker without its sockets: owns the engine thread and every attempt on it. Public
// methods are thread-safe and never block on a step; everything private is the engine thread's.

namespace baton::prefill {

// What an attempt says to the decode worker that asked for it. Accepted is said by Submit, the rest
// later by the engine thread; nothing may block. After End nothing more is said.
class RunStream {
 public:
  virtual ~RunStream() = default;
  struct FinishedInfo {
    int32_t first_token = 0;
    std::optional<TokenLogprobs> logprobs = {};  // of that, if they were asked for
    int64_t cached_tokens = 0;                   // of the prompt, not computed
    Clock::Duration queued{0};
    Clock::Duration computed{0};
  };
  virtual void Accepted() = 0;
  virtual void Started(int64_t handoff_bytes) = 0;
  virtual void Finished(const FinishedInfo& info) = 0;
  virtual void End(absl::Status status) = 0;
};

struct RunRequest {
  AttemptId attempt;
  std::string decode_address;  // where it serves Transfer
  Incarnation decode_incarnation = 0;
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  std::shared_ptr<RunStream> stream;
};

struct PrefillerOptions {
  StartLimits start;
  engine::ChunkLimits chunks;
  Incarnation incarnation = 0;
  Clock::Duration grant_timeout{0};     // from Started
  Clock::Duration handoff_timeout{0};   // once granted and computed, until Received
  const Clock* clock = &Clock::Real();  // outlives the worker
};

class Prefiller final : public engine::EngineClient {
 public:
  using RunId = uint64_t;

  // Everything referred to outlives this object.
  Prefiller(const PrefillerOptions& options, engine::Engine& engine, kvtransfer::Sender& sender,
            WorkerMetrics& metrics);
  // Drain first, or call Stop: no attempt may be left.
  ~Prefiller() override;

  // RESOURCE_EXHAUSTED when the queue is full and while draining, or what
  // Engine::CheckRequest says; the stream is not used then.
  absl::StatusOr<RunId> Submit(RunRequest request);
  void Grant(RunId run, const kvtransfer::Held& held, std::string transport);
  void Received(RunId run);
  // The stream is gone, for this reason. Unknown runs: no effect, as in all of these.
  void Abandon(RunId run, absl::Status why);
  // Deadlines are looked at when this is called.
  void Tick();

  // No new attempts. True when all have left within `timeout`, their pages included.
  bool Drain(Clock::Duration timeout);
  // Ends every attempt with `why`, waits for their transfers to end, then stops the engine thread.
  void Stop(const absl::Status& why);

  // As of the last step.
  WorkerLoad load() const;

 private:
  struct Run {
    RunId id = 0;
    RunRequest request;
    RunState state;
    StartQueue::Entry entry;
    bool settled = true;  // not counted as ungranted
    std::unique_ptr<engine::Sequence> sequence;
    kvtransfer::Held held;  // of the grant
    std::string transport;  // of the grant
    Clock::TimePoint queued_at;
    Clock::TimePoint started_at;
    Clock::TimePoint granted_at;
    Clock::TimePoint computed_at;
    Gate::Pass pass;

    // When nothing but the transfer was left to wait for; of granted, computed runs.
    Clock::TimePoint HandoffSince() const { return std::max(granted_at, computed_at); }
  };

  std::vector<engine::StepItem> PlanStep() override;
  void OnStep(std::vector<engine::StepOutput> outputs) override;

  void StartWaiting();
  absl::Status Start(Run& run);
  void OnGranted(Run& run, const kvtransfer::Held& held, std::string transport);
  bool IsSentAlready(const Run& run) const;
  void OpenTransfer(Run& run);
  void OnComputed(Run& run, const engine::StepOutput& output);
  void OnTransferEnded(RunId id, absl::Status status);
  void Apply(Run& run, Action action);
  void End(Run& run);
  void Retire(Run& run);
  void Settle(Run& run);
  // OK, or why the run has waited long enough for its decode worker.
  absl::Status CheckDeadline(const Run& run, Clock::TimePoint now) const;
  void Publish();
  absl::StatusOr<RunId> Admit(RunRequest request);  // of Submit, on its thread
  Run* Find(RunId id);
  // Runs `event` on the engine thread if the run is still there.
  void PostFor(RunId id, std::function<void(Run&)> event);

  const PrefillerOptions options_;
  engine::Engine& engine_;
  kvtransfer::Sender& sender_;
  WorkerMetrics& metrics_;
  const Clock& clock_;
  const CacheLayout layout_;
  engine::StepMetrics step_metrics_;
  Gate gate_;

  std::map<RunId, std::unique_ptr<Run>> runs_;  // ordered by age
  absl::flat_hash_map<const engine::Sequence*, Run*> by_sequence_;

  mutable Mutex mutex_;
  RunId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  StartQueue queue_ ABSL_GUARDED_BY(mutex_);
  WorkerLoad load_ ABSL_GUARDED_BY(mutex_);

  engine::EngineLoop loop_;  // last: its thread uses everything above
};

}  // namespace baton::prefill
