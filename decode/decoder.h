#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/token_logprobs.h"
#include "common/clock.h"
#include "common/gate.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/worker_load.h"
#include "common/worker_metrics.h"
#include "decode/admission.h"
#include "decode/prefill_client.h"
#include "decode/request_state.h"
#include "engine/chunk_scheduler.h"
#include "engine/engine.h"
#include "engine/engine_loop.h"
#include "engine/step_metrics.h"
#include "kvtransfer/receiver.h"

// The decode worker without its sockets: owns the engine thread and every request on it. Public
// methods are thread-safe and never wait for a step; everything private is the engine thread's.

namespace baton::decode {

// How a request was served. Durations are zero for legs that it did not have.
struct ServedFigures {
  Peer prefill;  // no address: the prompt was computed here
  int64_t handoff_bytes = 0;
  Clock::Duration prefill_time{0};  // queue + compute, as the prefill worker says
  Clock::Duration handoff{0};       // prompt computed until the last byte was verified
  Clock::Duration queued{0};        // on this worker: for pages, until the first step
};

// Where the tokens of a request go. Called by the engine thread; must not block.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  struct Delta {
    std::vector<int32_t> tokens;
    std::vector<TokenLogprobs> logprobs;  // one for each of these, if they are asked for
    uint32_t completion_tokens = 0;       // in all, these included
    uint32_t cached_tokens = 0;           // of the prompt: found in a prefix cache, not computed
    engine::Finish finish = engine::Finish::kNo;
    // With the first tokens, for answers that are cut short, and with the last: waiting once more,
    // after a preemption, counts too.
    const ServedFigures* served = nullptr;
  };
  virtual void Send(const Delta& delta) = 0;
  // Last. An error names the leg and, where another worker is at fault, that worker.
  virtual void End(absl::Status status, Leg leg, const Peer& peer) = 0;
};

struct GenerateRequest {
  AttemptId attempt;
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  std::vector<Peer> prefill_workers;  // best first; empty: compute the prompt here
  std::shared_ptr<TokenStream> stream;
  std::optional<Clock::Duration> timeout = {};  // what is left for all of it, if it is limited
};

struct DecoderOptions {
  AdmissionLimits admission;
  engine::ChunkLimits chunks;
  Incarnation incarnation = 0;
  int64_t local_prefill_tokens = 0;  // of a prompt cached here: up to so many are computed here
  int64_t growth_tokens = 256;
  Clock::Duration accept_timeout{0};
  Clock::Duration queue_timeout{0};
  Clock::Duration handoff_timeout{0};
  const Clock* clock = &Clock::Real();  // outlives the worker
};

class Decoder final : public engine::EngineClient {
 public:
  using Id = uint64_t;  // admission order

  // Everything referred to outlives this object. `receiver` calls back only for what is open here.
  Decoder(const DecoderOptions& options, engine::Engine& engine, kvtransfer::Receiver& receiver,
          PrefillClient& prefill, WorkerMetrics& metrics);
  // Drain first, or call Stop: no request may be left.
  ~Decoder() override;

  // RESOURCE_EXHAUSTED when the queue is full, UNAVAILABLE while draining, or what
  // Engine::CheckRequest says; the stream is not used then.
  absl::StatusOr<Id> Submit(GenerateRequest request);
  // Unknown requests: no effect.
  void Cancel(Id id, absl::Status why);
  // The client has its whole answer: the request ends as finished.
  void Finish(const AttemptId& attempt);
  // Deadlines are looked at when this is called.
  void Tick();

  // No new requests. True when all have left within `timeout`, their pages included.
  bool Drain(Clock::Duration timeout);
  // Ends every request with `why`, waits until no transfer and no prefill worker can touch this
  // object, then stops the engine thread.
  void Stop(const absl::Status& why);

  // As of the last step.
  WorkerLoad load() const;

 private:
  struct Request {
    Id id = 0;
    AttemptId attempt;
    std::shared_ptr<const std::vector<int32_t>> prompt;
    SamplingParams sampling;
    std::vector<Peer> prefill_workers;
    std::vector<std::string> candidates;  // addresses of those
    std::shared_ptr<TokenStream> stream;

    RequestState state{0};
    bool waiting = true;                  // counted by admission_
    std::optional<std::string> assigned;  // prefill worker whose quota it takes
    std::shared_ptr<PrefillCall> call;
    uint64_t call_number = 0;  // events of earlier calls mean nothing
    bool call_ended = false;   // on_end of the present one has come
    Incarnation sender = 0;
    std::optional<PrefillDone> prefilled;
    std::unique_ptr<engine::Sequence> sequence;
    kvtransfer::Held held;             // of the grant
    std::vector<int32_t> kept_tokens;  // of a preempted sequence: prompt and output so far
    uint32_t completion_tokens = 0;
    uint32_t cached_tokens = 0;
    ServedFigures served;
    int64_t landed_bytes = 0;  // when progress was seen last, at progress_at

    std::optional<Clock::TimePoint> deadline;
    Clock::TimePoint waits_since;  // for prefill or pages: since admission, or a preemption
    Clock::TimePoint asked_at;
    Clock::TimePoint asked_pages_at;
    Clock::TimePoint computed_at;  // by the prefill worker, as heard here
    Clock::TimePoint running_at;
    Clock::TimePoint progress_at;
    std::shared_ptr<Gate::Pass> pass;  // shared with the events of its calls
  };

  // A hand-off that is complete here: the prefill worker has been told and is to end the call.
  struct ClosingCall {
    std::shared_ptr<PrefillCall> call;
    Clock::TimePoint since;
  };

  std::vector<engine::StepItem> PlanStep() override;
  void OnStep(std::vector<engine::StepOutput> outputs) override;

  // decoder.cc: events of a request's life.
  void Dispatch(Request& request);
  void StayLocalIfShort(Request& request);
  void AskPeer(Request& request);
  void OnCallEnded(Request& request, const absl::Status& status);
  void OnRefused(Request& request, absl::Status why);
  absl::Status CheckFirstToken(const Request& request, const PrefillDone& done) const;
  void OnFinished(Request& request, const PrefillDone& done);
  void OnLanded(Id id, absl::Status status);
  void Adopt(Request& request);
  // `output` need not name its sequence.
  void Deliver(Request& request, engine::StepOutput output);
  void Apply(Request& request, Action action);
  void End(Request& request);
  void Release(Request& request);
  void Retire(Request& request);
  void StopWaiting(Request& request);
  void Unassign(Request& request);
  void CheckDeadlines(Request& request, Clock::TimePoint now);
  void CheckLanding(Request& request, Clock::TimePoint now);
  absl::StatusOr<Id> Admit(GenerateRequest request);  // of Submit, on its thread
  Request* Find(Id id);
  void PostFor(Id id, std::function<void(Request&)> event);

  // decoder_schedule.cc: pages and steps.
  void ServePageQueue();
  absl::Status Reserve(Request& request);
  void Grant(Request& request);
  bool GrowOrPreempt(std::vector<engine::StepItem>& items);
  void Preempt(Request& request);
  void AddLocalChunks(std::vector<engine::StepItem>& items);
  void Publish();

  const DecoderOptions options_;
  engine::Engine& engine_;
  kvtransfer::Receiver& receiver_;
  PrefillClient& prefill_;
  WorkerMetrics& metrics_;
  const Clock& clock_;
  const CacheLayout layout_;
  engine::StepMetrics step_metrics_;
  Gate gate_;

  std::map<Id, std::unique_ptr<Request>> requests_;
  std::map<Id, Request*> page_queue_;  // who waits for pages, oldest first
  uint64_t last_call_ = 0;
  std::map<uint64_t, ClosingCall> closing_calls_;  // by call_number
  absl::flat_hash_map<const engine::Sequence*, Request*> by_sequence_;

  mutable Mutex mutex_;
  Id last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  WorkerLoad load_ ABSL_GUARDED_BY(mutex_);

  engine::EngineLoop loop_;  // last: its thread uses everything above
};

}  // namespace baton::decode
