#include "prefill/prefiller.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "engine/cache/page_census.h"
#include "engine/cache_occupancy.h"
#include "kvtransfer/handoff_records.h"
#include "spdlog/spdlog.h"

namespace baton::prefill {

Prefiller::Prefiller(const PrefillerOptions& options, engine::Engine& engine,
                     kvtransfer::Sender& sender, WorkerMetrics& metrics)
    : options_(options),
      engine_(engine),
      sender_(sender),
      metrics_(metrics),
      clock_(*options.clock),
      layout_(engine.geometry().layout()),
      step_metrics_(metrics, clock_),
      queue_(options.start),
      loop_(engine, *this) {}

Prefiller::~Prefiller() { BATON_CHECK(runs_.empty()) << runs_.size() << " attempts are left"; }

// [PD-5] Prefill: admission. Answers at once, whatever the engine thread is busy with.
absl::StatusOr<Prefiller::RunId> Prefiller::Submit(RunRequest request) {
  absl::StatusOr<RunId> id = Admit(std::move(request));
  if (!id.ok()) metrics_.requests[OutcomeOf(id.status())].Increment();
  return id;
}

absl::StatusOr<Prefiller::RunId> Prefiller::Admit(RunRequest request) {
  BATON_RETURN_IF_ERROR(engine_.CheckRequest(request.prompt, request.sampling));
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  auto run = std::make_unique<Run>();
  run->pass = gate_.TryEnter();
  // Not UNAVAILABLE, which is what a worker that is gone looks like.
  if (!run->pass) return absl::ResourceExhaustedError("the prefill worker is draining");
  run->entry = {.id = 0,
                .decode_worker = request.decode_address,
                .tokens = tokens,
                .pages = engine_.geometry().PagesFor(tokens)};
  run->request = std::move(request);
  run->queued_at = clock_.Now();

  RunId id = 0;
  {
    MutexLock lock(mutex_);
    id = run->id = run->entry.id = ++last_id_;
    if (absl::Status status = queue_.Push(run->entry); !status.ok()) return status;
  }
  run->request.stream->Accepted();
  // A shared owner: std::function must be copyable.
  auto shared = std::make_shared<std::unique_ptr<Run>>(std::move(run));
  loop_.Post([this, id, shared] { runs_.emplace(id, std::move(*shared)); });
  return id;
}

void Prefiller::PostFor(RunId id, std::function<void(Run&)> event) {
  loop_.Post([this, id, event = std::move(event)] {
    if (Run* run = Find(id)) event(*run);
  });
}

Prefiller::Run* Prefiller::Find(RunId id) {
  const auto it = runs_.find(id);
  return it == runs_.end() ? nullptr : it->second.get();
}

void Prefiller::Grant(RunId run, const kvtransfer::Held& held, std::string transport) {
  PostFor(run, [this, held, transport = std::move(transport)](Run& granted) {
    OnGranted(granted, held, transport);
  });
}

void Prefiller::Received(RunId run) {
  PostFor(run, [this](Run& received) { Apply(received, received.state.OnReceived()); });
}

void Prefiller::Abandon(RunId run, absl::Status why) {
  PostFor(run, [this, why = std::move(why)](Run& abandoned) {
    Apply(abandoned, abandoned.state.OnEnd(why));
  });
}

std::vector<engine::StepItem> Prefiller::PlanStep() {
  StartWaiting();
  std::vector<engine::Sequence*> computing;
  for (const auto& [id, run] : runs_) {
    if (run->state.phase() == Phase::kComputing) computing.push_back(run->sequence.get());
  }
  std::vector<engine::StepItem> items = engine::ScheduleChunks(computing, options_.chunks);
  Publish();
  step_metrics_.OnPlanned(engine_, items);
  return items;
}

void Prefiller::StartWaiting() {
  while (true) {
    std::optional<StartQueue::Entry> next;
    {
      MutexLock lock(mutex_);
      if (const StartQueue::Entry* entry = queue_.Next()) next = *entry;
    }
    if (!next) return;
    Run* run = Find(next->id);
    if (run == nullptr) return;  // submitted a moment ago: its task is still to come
    absl::Status status = Start(*run);
    if (absl::IsResourceExhausted(status)) return;  // in order: nobody overtakes for lack of pages
    if (!status.ok()) Apply(*run, run->state.OnEnd(std::move(status)));
  }
}

absl::Status Prefiller::Start(Run& run) {
  BATON_RETURN_IF_ERROR(engine_.CheckRoom(run.request.prompt, run.entry.tokens));
  auto sequence = engine_.NewSequence(run.request.prompt, run.request.sampling, run.entry.tokens);
  if (!sequence.ok()) return sequence.status();
  run.sequence = *std::move(sequence);
  step_metrics_.OnBegun(engine_, *run.sequence, engine::PrefixUse::kCompute);
  run.request.prompt = {};  // the sequence has it
  by_sequence_.emplace(run.sequence.get(), &run);
  {
    MutexLock lock(mutex_);
    queue_.Start(run.id);
  }
  run.settled = false;
  run.started_at = clock_.Now();
  metrics_.stage_duration[Stage::kPrefillQueue].Observe(Seconds(run.started_at - run.queued_at));
  run.state.OnStarted();
  run.request.stream->Started(HandoffBytes(layout_, run.sequence->prompt_tokens()));
  return absl::OkStatus();
}

// [PD-7] Prefill: pushes finished records after each chunk, and the sequence's state after the
// last.
void Prefiller::OnStep(std::vector<engine::StepOutput> outputs) {
  step_metrics_.OnDone(outputs);
  for (const engine::StepOutput& output : outputs) {
    Run& run = *by_sequence_.at(output.sequence);
    if (output.new_tokens.empty()) {
      if (run.state.granted()) sender_.Advance(run.request.attempt, run.sequence->computed());
    } else {
      OnComputed(run, output);
    }
  }
}

void Prefiller::OnComputed(Run& run, const engine::StepOutput& output) {
  run.computed_at = clock_.Now();
  const Clock::Duration computed = run.computed_at - run.started_at;
  metrics_.stage_duration[Stage::kPrefill].Observe(Seconds(computed));
  run.state.OnComputed();
  RunStream::FinishedInfo info{.first_token = output.new_tokens.front(),
                               .cached_tokens = run.sequence->cached_tokens(),
                               .queued = run.started_at - run.queued_at,
                               .computed = computed};
  if (!output.logprobs.empty()) info.logprobs = output.logprobs.front();
  run.request.stream->Finished(info);
  if (run.state.granted()) sender_.Finish(run.request.attempt, run.entry.tokens);
}

void Prefiller::OnGranted(Run& run, const kvtransfer::Held& held, std::string transport) {
  run.held = held;
  run.transport = std::move(transport);
  const Action action = run.state.OnGrant();
  if (action == Action::kOpenTransfer) {
    run.granted_at = clock_.Now();
    Settle(run);
  }
  Apply(run, action);
}

// The sender knows transfers by their attempt, whatever they go over: of two of one attempt each
// would send what only the other has computed.
bool Prefiller::IsSentAlready(const Run& run) const {
  return std::any_of(runs_.begin(), runs_.end(), [&run](const auto& entry) {
    const Run& other = *entry.second;
    return other.id != run.id && other.state.transfer_open() &&
           other.request.attempt == run.request.attempt;
  });
}

void Prefiller::OpenTransfer(Run& run) {
  kvtransfer::OutboundSpec spec;
  spec.key = {.attempt = run.request.attempt,
              .sender = options_.incarnation,
              .receiver = run.request.decode_incarnation};
  spec.transport = run.transport;
  spec.endpoint = run.request.decode_address;
  spec.records = &run.sequence->records();
  spec.layout = layout_;
  spec.held = run.held;
  spec.on_end = [this, id = run.id](absl::Status status) {
    loop_.Post([this, id, status = std::move(status)] { OnTransferEnded(id, status); });
  };
  metrics_.kv_transfers_inflight.Increment();
  absl::Status opened =
      IsSentAlready(run)
          ? absl::AlreadyExistsError(
                absl::StrCat("attempt ", run.request.attempt.ToString(), " is being sent already"))
          : sender_.Open(std::move(spec));
  if (!opened.ok()) {  // on_end is not called
    OnTransferEnded(run.id, std::move(opened));
    return;
  }
  if (run.sequence->computed() > 0) {
    sender_.Advance(run.request.attempt, run.sequence->computed());
  }
  if (run.state.phase() == Phase::kComputed) sender_.Finish(run.request.attempt, run.entry.tokens);
}

void Prefiller::OnTransferEnded(RunId id, absl::Status status) {
  Run* run = Find(id);
  BATON_CHECK(run != nullptr) << "an open transfer keeps its attempt";
  metrics_.kv_transfers_inflight.Decrement();
  // ABORTED: the decode worker had given the attempt up before its control stream could say so.
  metrics_.kv_transfers[absl::IsAborted(status) ? Outcome::kCancelled : OutcomeOf(status)]
      .Increment();
  if (status.ok()) {
    metrics_.kv_transfer_bytes(run->transport, Direction::kSent)
        .Increment(
            static_cast<double>(kvtransfer::HandoffBytes(layout_, run->held, run->entry.tokens)));
    const double seconds = Seconds(clock_.Now() - run->HandoffSince());
    metrics_.kv_transfer_duration(run->transport).Observe(seconds);
    metrics_.stage_duration[Stage::kKvTransfer].Observe(seconds);
    // Nothing reads the pages any more, and decode has verified them all.
    Retire(*run);
  }
  const bool ended = run->state.phase() == Phase::kEnded;
  const Action action = run->state.OnTransferEnded(std::move(status));
  if (ended) {
    End(*run);  // lifts the quarantine
  } else {
    Apply(*run, action);
  }
}

void Prefiller::Apply(Run& run, Action action) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kOpenTransfer:
      OpenTransfer(run);
      return;
    case Action::kEnd:
      break;
  }
  const absl::Status& status = run.state.end_status();
  metrics_.requests[OutcomeOf(status)].Increment();
  if (!status.ok()) {
    spdlog::info("attempt {} of {} ends: {}", run.request.attempt.ToString(),
                 run.request.decode_address, status.ToString());
  }
  {
    MutexLock lock(mutex_);
    queue_.Remove(run.id);
  }
  Settle(run);
  run.request.stream->End(status);
  if (run.state.transfer_open() && !status.ok()) {
    sender_.Cancel(run.request.attempt, status);
  }
  End(run);
}

// Frees what an ended attempt holds once nothing can touch it.
void Prefiller::End(Run& run) {
  if (run.state.transfer_open()) return;
  Retire(run);
  runs_.erase(run.id);
}

void Prefiller::Retire(Run& run) {
  if (run.sequence == nullptr) return;
  by_sequence_.erase(run.sequence.get());
  engine_.Retire(std::move(run.sequence));
}

void Prefiller::Settle(Run& run) {
  if (run.settled) return;
  run.settled = true;
  MutexLock lock(mutex_);
  queue_.Settle(run.entry);
}

// A grant that does not come says that the decode worker has no pages: it is full, not broken, and
// the request may find room elsewhere.
absl::Status Prefiller::CheckDeadline(const Run& run, Clock::TimePoint now) const {
  const Phase phase = run.state.phase();
  if (phase != Phase::kComputing && phase != Phase::kComputed) return absl::OkStatus();
  if (!run.state.granted()) {
    if (now - run.started_at <= options_.grant_timeout) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("decode worker ", run.request.decode_address,
                                                     " had no pages to grant in ",
                                                     Seconds(options_.grant_timeout), " s"));
  }
  if (phase != Phase::kComputed || now - run.HandoffSince() <= options_.handoff_timeout) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat("decode worker ", run.request.decode_address,
                                         " did not receive everything in ",
                                         Seconds(options_.handoff_timeout), " s"));
}

void Prefiller::Tick() {
  loop_.Post([this, now = clock_.Now()] {
    metrics_.CountFrames(sender_.stats().frames_by_verdict);
    std::vector<std::pair<Run*, absl::Status>> late;
    for (const auto& [id, run] : runs_) {
      absl::Status status = CheckDeadline(*run, now);
      if (!status.ok()) late.emplace_back(run.get(), std::move(status));
    }
    for (auto& [run, why] : late) Apply(*run, run->state.OnEnd(std::move(why)));
  });
}

bool Prefiller::Drain(Clock::Duration timeout) {
  gate_.Close();
  return gate_.WaitEmpty(timeout);
}

void Prefiller::Stop(const absl::Status& why) {
  // Transfers end by the sender's word alone, and it gives it whatever happens to the peer.
  loop_.StopWhenEmpty(gate_, [this, why] {
    std::vector<Run*> all;
    for (const auto& [id, run] : runs_) all.push_back(run.get());
    for (Run* run : all) Apply(*run, run->state.OnEnd(why));
  });
}

void Prefiller::Publish() {
  WorkerLoad load;
  load.cache = engine::OccupancyOf(engine_.usage());
  engine::PageCensus census(load.cache.pages_total);
  for (const auto& [id, run] : runs_) {
    if (run->sequence == nullptr) continue;
    const int64_t pages = census.Count(run->sequence->page_ids());
    switch (run->state.phase()) {
      case Phase::kQueued:
        break;
      case Phase::kComputing:
        ++load.running;
        load.waiting_tokens += run->entry.tokens - run->sequence->computed();
        load.cache.pages_sequences += pages;
        break;
      case Phase::kComputed:
        ++load.running;
        load.cache.pages_transfer += pages;
        break;
      case Phase::kEnded:
        load.cache.pages_quarantine += pages;
        break;
    }
  }
  MutexLock lock(mutex_);
  load.waiting = static_cast<int64_t>(queue_.size());
  load.waiting_tokens += queue_.waiting_tokens();
  load_ = load;
}

WorkerLoad Prefiller::load() const {
  MutexLock lock(mutex_);
  return load_;
}

}  // namespace baton::prefill
