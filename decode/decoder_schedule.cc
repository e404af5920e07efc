#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/status_macros.h"
#include "decode/decoder.h"
#include "engine/cache/page_census.h"
#include "engine/cache_occupancy.h"
#include "engine/growth_policy.h"
#include "spdlog/spdlog.h"

// What a step computes, and who gets pages: sequences that run come first, then those that wait,
// in order of admission.

namespace baton::decode {

std::vector<engine::StepItem> Decoder::PlanStep() {
  std::vector<engine::StepItem> items;
  const bool all_run = GrowOrPreempt(items);
  if (all_run) ServePageQueue();
  AddLocalChunks(items);
  Publish();
  step_metrics_.OnPlanned(engine_, items);
  return items;
}

// Running sequences whose pages suffice for the next step, after the youngest have made room. False
// when some skip it: free pages are theirs then.
bool Decoder::GrowOrPreempt(std::vector<engine::StepItem>& items) {
  std::vector<Request*> holders;
  std::vector<engine::GrowthCandidate> candidates;
  const engine::CacheUsage usage = engine_.usage();
  // Pages that several hold come free with the last of them: a pinned one, else the oldest.
  engine::PageCensus census(usage.pages_total);
  for (const bool pinned : {true, false}) {
    for (const auto& [id, request] : requests_) {
      const Phase phase = request->state.phase();
      const bool may_give_way = phase == Phase::kRunning || phase == Phase::kLocal;
      if (request->sequence == nullptr || pinned == may_give_way) continue;
      const engine::Sequence& sequence = *request->sequence;
      int64_t needed = 0;
      if (phase == Phase::kRunning) {
        needed = engine_.geometry().PagesFor(engine_.PositionsAfterDecode(sequence)) -
                 engine_.geometry().PagesFor(sequence.reserved_tokens());
      }
      holders.push_back(request.get());
      candidates.push_back({.admitted = id,
                            .pages_held = census.Count(sequence.page_ids()),
                            .pages_needed = std::max<int64_t>(needed, 0),
                            .pinned = pinned});
    }
  }
  const engine::GrowthPlan plan = engine::PlanGrowth(candidates, usage.pages_available());
  for (const size_t i : plan.preempt) Preempt(*holders[i]);
  for (const size_t i : plan.run) {
    if (holders[i]->state.phase() != Phase::kRunning) continue;
    engine::Sequence& sequence = *holders[i]->sequence;
    const absl::Status grown = engine_.Grow(sequence, engine_.PositionsAfterDecode(sequence));
    BATON_CHECK(grown.ok()) << grown.ToString();
    items.push_back({&sequence, 0});
  }
  return plan.skip.empty();
}

void Decoder::Preempt(Request& request) {
  spdlog::info("attempt {} gives {} pages back and is computed again later",
               request.attempt.ToString(),
               engine_.geometry().PagesFor(request.sequence->reserved_tokens()));
  request.kept_tokens = request.sequence->tokens();
  Retire(request);
  request.waits_since = clock_.Now();
  Apply(request, request.state.OnPreempted());
}

void Decoder::ServePageQueue() {
  while (!page_queue_.empty()) {
    Request& request = *page_queue_.begin()->second;
    absl::Status status = Reserve(request);
    if (absl::IsResourceExhausted(status)) return;  // in order: nobody overtakes for lack of pages
    page_queue_.erase(request.id);
    if (!status.ok()) {
      Apply(request, request.state.OnEnd(std::move(status)));
    } else if (request.state.phase() == Phase::kPrefilling) {
      Grant(request);
    }
  }
}

// [PD-6] Decode: a state slot and pages for the prompt and its growth, all or nothing.
absl::Status Decoder::Reserve(Request& request) {
  const std::vector<int32_t>& tokens =
      request.kept_tokens.empty() ? *request.prompt : request.kept_tokens;
  SamplingParams sampling = request.sampling;
  sampling.max_tokens -= request.completion_tokens;
  sampling.min_tokens -= std::min(sampling.min_tokens, request.completion_tokens);
  sampling.resumed_tokens = request.completion_tokens;
  const int64_t growth = std::min<int64_t>(sampling.max_tokens, options_.growth_tokens);
  const int64_t reserve =
      std::min(static_cast<int64_t>(tokens.size()) + growth, engine_.max_sequence_tokens());
  const bool local = request.state.phase() == Phase::kLocal;
  const auto use = local ? engine::PrefixUse::kCompute : engine::PrefixUse::kReceive;
  BATON_RETURN_IF_ERROR(engine_.CheckRoom(tokens, reserve, use));
  auto sequence = engine_.NewSequence(tokens, sampling, reserve, use);
  if (!sequence.ok()) return sequence.status();
  request.sequence = *std::move(sequence);
  step_metrics_.OnBegun(engine_, *request.sequence, use);
  const bool first_time = request.kept_tokens.empty();
  if (local && first_time) {
    request.cached_tokens = static_cast<uint32_t>(request.sequence->cached_tokens());
  }
  by_sequence_.emplace(request.sequence.get(), &request);
  const Clock::Duration waited = clock_.Now() - request.asked_pages_at;
  request.served.queued += waited;
  metrics_.stage_duration[Stage::kKvAlloc].Observe(Seconds(waited));
  return absl::OkStatus();
}

// The landing is open before the prefill worker hears of the grant: nothing is sent earlier.
void Decoder::Grant(Request& request) {
  request.state.OnGranted();
  kvtransfer::LandingSpec spec;
  spec.key = {
      .attempt = request.attempt, .sender = request.sender, .receiver = options_.incarnation};
  spec.records = &request.sequence->records();
  spec.layout = layout_;
  spec.held = request.held = {.entries = request.sequence->cached_tokens(),
                              .state = request.sequence->state_tokens()};
  spec.tokens = request.sequence->prompt_tokens();
  spec.on_end = [this, id = request.id](absl::Status status) {
    loop_.Post([this, id, status = std::move(status)] { OnLanded(id, status); });
  };
  metrics_.kv_transfers_inflight.Increment();
  request.progress_at = clock_.Now();
  absl::Status expected = receiver_.Expect(std::move(spec));
  if (!expected.ok()) {  // on_end is not called
    OnLanded(request.id, std::move(expected));
    return;
  }
  request.call->Grant(request.held);
}

void Decoder::AddLocalChunks(std::vector<engine::StepItem>& items) {
  std::vector<engine::Sequence*> computing;
  for (const auto& [id, request] : requests_) {
    if (request->state.phase() != Phase::kLocal || request->sequence == nullptr) continue;
    computing.push_back(request->sequence.get());
  }
  const std::vector<engine::StepItem> chunks = engine::ScheduleChunks(computing, options_.chunks);
  items.insert(items.end(), chunks.begin(), chunks.end());
}

void Decoder::Publish() {
  WorkerLoad load;
  load.cache = engine::OccupancyOf(engine_.usage());
  engine::PageCensus census(load.cache.pages_total);
  for (const auto& [id, request] : requests_) {
    const Phase phase = request->state.phase();
    if (phase == Phase::kRunning) ++load.running;
    if (request->waiting) load.waiting_tokens += static_cast<int64_t>(request->prompt->size());
    if (request->sequence == nullptr) continue;
    const int64_t pages = census.Count(request->sequence->page_ids());
    if (phase == Phase::kLanding) {
      load.cache.pages_transfer += pages;
    } else if (phase == Phase::kEnded) {
      load.cache.pages_quarantine += pages;
    } else {
      load.cache.pages_sequences += pages;
    }
  }
  MutexLock lock(mutex_);
  load.waiting = static_cast<int64_t>(admission_.waiting());
  load_ = load;
}

WorkerLoad Decoder::load() const {
  MutexLock lock(mutex_);
  return load_;
}

}  // namespace baton::decode
