#include "decode/decoder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "kvtransfer/handoff_records.h"
#include "spdlog/spdlog.h"

namespace baton::decode {
namespace {

// What prefill workers are given beyond a request's own deadline, so that it is the caller's end
// that counts and not theirs, which would be their fault.
constexpr std::chrono::seconds kDeadlineSlack{1};

}  // namespace

Decoder::Decoder(const DecoderOptions& options, engine::Engine& engine,
                 kvtransfer::Receiver& receiver, PrefillClient& prefill, WorkerMetrics& metrics)
    : options_(options),
      engine_(engine),
      receiver_(receiver),
      prefill_(prefill),
      metrics_(metrics),
      clock_(*options.clock),
      layout_(engine.geometry().layout()),
      step_metrics_(metrics, clock_),
      admission_(options.admission),
      loop_(engine, *this) {}

Decoder::~Decoder() { BATON_CHECK(requests_.empty()) << requests_.size() << " requests are left"; }

// [PD-3] Decode: admission, and the choice between local and remote prefill. Answers at once,
// whatever the engine thread is busy with.
absl::StatusOr<Decoder::Id> Decoder::Submit(GenerateRequest submitted) {
  absl::StatusOr<Id> id = Admit(std::move(submitted));
  if (!id.ok()) metrics_.requests[OutcomeOf(id.status())].Increment();
  return id;
}

absl::StatusOr<Decoder::Id> Decoder::Admit(GenerateRequest submitted) {
  BATON_RETURN_IF_ERROR(engine_.CheckRequest(submitted.prompt, submitted.sampling));
  Gate::Pass pass = gate_.TryEnter();
  if (!pass) return absl::UnavailableError("the decode worker is draining");

  auto request = std::make_shared<std::unique_ptr<Request>>(std::make_unique<Request>());
  Request& fresh = **request;
  fresh.pass = std::make_shared<Gate::Pass>(std::move(pass));
  fresh.attempt = submitted.attempt;
  fresh.prefill_workers = std::move(submitted.prefill_workers);
  for (const Peer& peer : fresh.prefill_workers) fresh.candidates.push_back(peer.address);
  fresh.state = RequestState(fresh.prefill_workers.size());
  fresh.prompt = std::make_shared<const std::vector<int32_t>>(std::move(submitted.prompt));
  fresh.sampling = std::move(submitted.sampling);
  fresh.stream = std::move(submitted.stream);
  fresh.waits_since = clock_.Now();
  if (submitted.timeout) fresh.deadline = fresh.waits_since + *submitted.timeout;

  Id id = 0;
  {
    MutexLock lock(mutex_);
    BATON_RETURN_IF_ERROR(admission_.Enter());
    id = fresh.id = ++last_id_;
  }
  loop_.Post([this, request] {
    Request& admitted = **request;
    requests_.emplace(admitted.id, std::move(*request));
    Dispatch(admitted);
  });
  return id;
}

Decoder::Request* Decoder::Find(Id id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.get();
}

void Decoder::PostFor(Id id, std::function<void(Request&)> event) {
  loop_.Post([this, id, event = std::move(event)] {
    if (Request* request = Find(id)) event(*request);
  });
}

void Decoder::Cancel(Id id, absl::Status why) {
  PostFor(id, [this, why = std::move(why)](Request& request) {
    Apply(request, request.state.OnEnd(why));
  });
}

void Decoder::Finish(const AttemptId& attempt) {
  loop_.Post([this, attempt] {
    for (const auto& [id, request] : requests_) {
      if (request->attempt != attempt) continue;
      Apply(*request, request->state.OnEnd(absl::OkStatus()));
      return;
    }
  });
}

// A short rest of a prompt that is cached here is not worth a hand-off. What is cached now may be
// gone when it begins: nothing is pinned for a request that waits.
void Decoder::StayLocalIfShort(Request& request) {
  const int64_t cached = engine_.FindPrefix(*request.prompt).compute_from;
  const int64_t rest = std::ssize(*request.prompt) - cached;
  if (cached == 0 || rest > options_.local_prefill_tokens) return;
  request.prefill_workers.clear();
  request.candidates.clear();
  request.state = RequestState(0);
}

void Decoder::Dispatch(Request& request) {
  StayLocalIfShort(request);
  size_t candidate = 0;
  if (!request.candidates.empty()) {
    MutexLock lock(mutex_);
    candidate = admission_.Assign(request.candidates, 0);
  }
  if (candidate < request.candidates.size()) {
    request.assigned = request.candidates[candidate];
  } else if (!request.candidates.empty()) {
    Apply(request, request.state.OnEnd(absl::ResourceExhaustedError(
                       absl::StrCat("all ", candidate,
                                    " prefill workers named have as many requests waiting as "
                                    "one may have"))));
    return;
  }
  Apply(request, request.state.OnDispatch(candidate));
}

// [PD-4] Decode: opens the control stream of the hand-off. Everything that can go wrong comes back
// as its end.
void Decoder::AskPeer(Request& request) {
  const Peer& peer = request.prefill_workers[request.state.candidate()];
  request.asked_at = clock_.Now();
  request.served.prefill = peer;
  const Id id = request.id;
  const uint64_t number = request.call_number = ++last_call_;
  request.call_ended = false;
  request.prefilled.reset();
  const auto current = [this, id, number](std::function<void(Request&)> event) {
    PostFor(id, [number, event = std::move(event)](Request& asked) {
      if (asked.call_number == number) event(asked);
    });
  };
  PrefillEvents events;
  events.on_accepted = [this, current](Incarnation incarnation) {
    current([this, incarnation](Request& asked) {
      if (asked.state.accepted()) return;  // said twice
      asked.sender = incarnation;
      asked.served.prefill.incarnation = incarnation;
      Apply(asked, asked.state.OnAccepted());
    });
  };
  events.on_started = [this, current] {
    current([this](Request& asked) { Apply(asked, asked.state.OnStarted()); });
  };
  events.on_finished = [this, current](const PrefillDone& done) {
    current([this, done](Request& asked) { OnFinished(asked, done); });
  };
  // The pass keeps this object until the call can say nothing more. One task, so that the request
  // does not end in the middle of it and leave a call to be closed that has ended.
  events.on_end = [this, id, number, pass = request.pass](absl::Status status) {
    loop_.Post([this, id, number, status = std::move(status)] {
      closing_calls_.erase(number);
      Request* const asked = Find(id);
      if (asked != nullptr && asked->call_number == number) OnCallEnded(*asked, status);
    });
  };
  PrefillOpen open{
      .attempt = request.attempt, .prompt = request.prompt, .sampling = request.sampling};
  if (request.deadline) open.timeout = *request.deadline - request.asked_at + kDeadlineSlack;
  request.call = prefill_.Open(peer, std::move(open), std::move(events));
}

void Decoder::OnCallEnded(Request& request, const absl::Status& status) {
  request.call_ended = true;
  if (request.state.phase() == Phase::kPrefilling && !request.state.accepted()) {
    OnRefused(request, status);
  } else {
    Apply(request, request.state.OnStreamEnded(status));
  }
}

void Decoder::OnRefused(Request& request, absl::Status why) {
  spdlog::info("attempt {}: prefill worker {} does not take it: {}", request.attempt.ToString(),
               request.served.prefill.address, why.ToString());
  // A request that is at fault itself is so everywhere. One that is too long here (OUT_OF_RANGE)
  // may fit a worker with more pages.
  size_t next = request.candidates.size();
  if (!absl::IsInvalidArgument(why)) {
    MutexLock lock(mutex_);
    next = admission_.Assign(request.candidates, request.state.candidate() + 1);
  }
  Unassign(request);
  if (next < request.candidates.size()) request.assigned = request.candidates[next];
  Apply(request, request.state.OnRefused(next, std::move(why)));
}

absl::Status Decoder::CheckFirstToken(const Request& request, const PrefillDone& done) const {
  if (done.first_token < 0 || done.first_token >= engine_.model_config().vocab_size) {
    return absl::InternalError(
        absl::StrCat("first token ", done.first_token, " is outside the vocabulary"));
  }
  if (request.sampling.top_logprobs.has_value() != done.logprobs.has_value()) {
    return absl::InternalError(
        absl::StrCat("log-probabilities of the first token came ",
                     done.logprobs ? "although nobody asks for them" : "not with it"));
  }
  return absl::OkStatus();
}

void Decoder::OnFinished(Request& request, const PrefillDone& done) {
  if (request.prefilled.has_value()) return;  // said twice, of which the first counts
  if (absl::Status status = CheckFirstToken(request, done); !status.ok()) {
    Apply(request, request.state.OnEnd(std::move(status), Leg::kPrefill));
    return;
  }
  request.prefilled = done;
  request.computed_at = request.progress_at = clock_.Now();
  request.cached_tokens = static_cast<uint32_t>(done.cached_tokens);
  request.served.prefill_time = done.queued + done.computed;
  metrics_.stage_duration[Stage::kPrefillQueue].Observe(Seconds(done.queued));
  metrics_.stage_duration[Stage::kPrefill].Observe(Seconds(done.computed));
  Apply(request, request.state.OnFinished());
}

// [PD-8] Decode: every frame has been verified and written by a transfer thread, or none will be.
void Decoder::OnLanded(Id id, absl::Status status) {
  Request* request = Find(id);
  BATON_CHECK(request != nullptr) << "an open landing keeps its request";
  metrics_.kv_transfers_inflight.Decrement();
  metrics_.kv_transfers[OutcomeOf(status)].Increment();
  if (status.ok()) {
    request->served.handoff_bytes =
        kvtransfer::HandoffBytes(layout_, request->held, request->sequence->prompt_tokens());
    metrics_.kv_transfer_bytes(request->call->transport(), Direction::kReceived)
        .Increment(static_cast<double>(request->served.handoff_bytes));
  }
  const bool ended = request->state.phase() == Phase::kEnded;
  const Action action = request->state.OnLanded(std::move(status));
  if (ended) {
    Release(*request);  // lifts the quarantine
  } else {
    Apply(*request, action);
  }
}

void Decoder::Adopt(Request& request) {
  request.call->Received();
  request.served.handoff = clock_.Now() - request.computed_at;
  metrics_.kv_transfer_duration(request.call->transport()).Observe(Seconds(request.served.handoff));
  metrics_.stage_duration[Stage::kKvTransfer].Observe(Seconds(request.served.handoff));
  engine_.AdoptHandoff(*request.sequence, request.prefilled->first_token);
  StopWaiting(request);
  engine::StepOutput first{.new_tokens = {request.prefilled->first_token},
                           .finish = engine_.FinishOf(*request.sequence)};
  if (request.prefilled->logprobs) first.logprobs = {*std::move(request.prefilled->logprobs)};
  Deliver(request, std::move(first));
}

// [PD-9] Decode: tokens go into a buffer that holds max_tokens: a slow reader never blocks a step.
void Decoder::OnStep(std::vector<engine::StepOutput> outputs) {
  step_metrics_.OnDone(outputs);
  for (engine::StepOutput& output : outputs) {
    Request& request = *by_sequence_.at(output.sequence);
    if (output.new_tokens.empty()) continue;  // an inner chunk of a local prefill
    if (request.state.phase() == Phase::kLocal) {
      request.state.OnLocalPrefilled();
      StopWaiting(request);
    }
    Deliver(request, std::move(output));
  }
}

void Decoder::Deliver(Request& request, engine::StepOutput output) {
  const engine::Finish finish = output.finish;
  const bool tell_served = request.completion_tokens == 0 || finish != engine::Finish::kNo;
  request.completion_tokens += static_cast<uint32_t>(output.new_tokens.size());
  request.stream->Send({.tokens = std::move(output.new_tokens),
                        .logprobs = std::move(output.logprobs),
                        .completion_tokens = request.completion_tokens,
                        .cached_tokens = request.cached_tokens,
                        .finish = finish,
                        .served = tell_served ? &request.served : nullptr});
  if (finish != engine::Finish::kNo) Apply(request, request.state.OnEnd(absl::OkStatus()));
}

void Decoder::Apply(Request& request, Action action) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kAskPeer:
      AskPeer(request);
      return;
    case Action::kAskPages:
      request.asked_pages_at = clock_.Now();
      page_queue_.emplace(request.id, &request);
      return;
    case Action::kFence:
      receiver_.Abort(request.attempt, absl::UnavailableError("the prefill worker is gone"));
      return;
    case Action::kAdopt:
      Adopt(request);
      return;
    case Action::kEnd:
      End(request);
      return;
  }
}

void Decoder::End(Request& request) {
  const absl::Status& status = request.state.end_status();
  metrics_.requests[OutcomeOf(status)].Increment();
  if (request.running_at != Clock::TimePoint()) {
    metrics_.stage_duration[Stage::kDecode].Observe(Seconds(clock_.Now() - request.running_at));
  }
  if (!status.ok()) {
    spdlog::info("attempt {} ends: {}", request.attempt.ToString(), status.ToString());
  }
  page_queue_.erase(request.id);
  StopWaiting(request);
  const bool peer_at_fault = request.state.end_leg() != Leg::kDecode;
  request.stream->End(status, request.state.end_leg(),
                      peer_at_fault ? request.served.prefill : Peer());
  if (!status.ok()) {
    if (request.state.landing_open()) receiver_.Abort(request.attempt, status);
    if (request.call != nullptr) request.call->Cancel();
  } else if (request.call != nullptr && !request.call_ended) {
    closing_calls_[request.call_number] = {.call = request.call, .since = clock_.Now()};
  }
  Release(request);
}

// Frees what an ended request holds once nothing can touch it.
void Decoder::Release(Request& request) {
  if (request.state.landing_open()) return;
  Retire(request);
  requests_.erase(request.id);
}

// What it computed, or received in full, may serve the next turn.
void Decoder::Retire(Request& request) {
  if (request.sequence == nullptr) return;
  by_sequence_.erase(request.sequence.get());
  engine_.Retire(std::move(request.sequence));
}

void Decoder::StopWaiting(Request& request) {
  Unassign(request);
  if (!request.waiting) return;
  request.waiting = false;
  if (request.state.phase() == Phase::kRunning) {
    request.running_at = clock_.Now();
    metrics_.stage_duration[Stage::kDecodeQueue].Observe(Seconds(request.served.queued));
  }
  MutexLock lock(mutex_);
  admission_.Leave();
}

void Decoder::Unassign(Request& request) {
  if (!request.assigned) return;
  MutexLock lock(mutex_);
  admission_.Unassign(*request.assigned);
  request.assigned.reset();
}

void Decoder::Tick() {
  loop_.Post([this, now = clock_.Now()] {
    metrics_.CountFrames(receiver_.stats().frames_by_verdict);
    std::vector<Id> ids;
    for (const auto& [id, request] : requests_) ids.push_back(id);
    for (const Id id : ids) {
      if (Request* request = Find(id)) CheckDeadlines(*request, now);
    }
    for (const auto& [number, closing] : closing_calls_) {
      if (now - closing.since > options_.handoff_timeout) closing.call->Cancel();
    }
  });
}

// Keepalive notices a prefill worker that is gone, but not one that stands still.
void Decoder::CheckLanding(Request& request, Clock::TimePoint now) {
  const bool computed = request.prefilled.has_value();
  const Clock::Duration patience = computed ? options_.handoff_timeout : options_.queue_timeout;
  const int64_t bytes = receiver_.received_bytes(request.attempt);
  if (bytes != request.landed_bytes) {
    request.landed_bytes = bytes;
    request.progress_at = now;
  } else if (now - request.progress_at > patience) {
    Apply(request,
          request.state.OnEnd(absl::UnavailableError(absl::StrCat(
                                  computed ? "hand-off" : "prefill", " made no progress for ",
                                  Seconds(patience), " s at ", bytes, " bytes")),
                              computed ? Leg::kTransfer : Leg::kPrefill));
  }
}

void Decoder::CheckDeadlines(Request& request, Clock::TimePoint now) {
  const Phase phase = request.state.phase();
  if (phase == Phase::kLanding) {
    CheckLanding(request, now);
    return;
  }
  if (!request.waiting || request.sequence != nullptr) return;
  if (now - request.waits_since > options_.queue_timeout) {
    const bool for_pages = page_queue_.contains(request.id);
    Apply(request, request.state.OnEnd(absl::ResourceExhaustedError(absl::StrCat(
                                           "waited ", Seconds(options_.queue_timeout), " s for ",
                                           for_pages ? "pages on the decode worker" : "prefill")),
                                       for_pages ? Leg::kDecode : Leg::kPrefill));
  } else if (phase == Phase::kPrefilling && !request.state.accepted() &&
             now - request.asked_at > options_.accept_timeout) {
    const std::shared_ptr<PrefillCall> late = std::move(request.call);
    ++request.call_number;  // its end means nothing any more
    late->Cancel();
    OnRefused(request, absl::UnavailableError(
                           absl::StrCat("no answer in ", Seconds(options_.accept_timeout), " s")));
  }
}

bool Decoder::Drain(Clock::Duration timeout) {
  gate_.Close();
  return gate_.WaitEmpty(timeout);
}

void Decoder::Stop(const absl::Status& why) {
  // Landings end by the receiver's word alone, and it gives it.
  loop_.StopWhenEmpty(gate_, [this, why] {
    std::vector<Request*> all;
    for (const auto& [id, request] : requests_) all.push_back(request.get());
    for (Request* request : all) Apply(*request, request->state.OnEnd(why));
    for (const auto& [number, closing] : closing_calls_) closing.call->Cancel();
  });
}

}  // namespace baton::decode
