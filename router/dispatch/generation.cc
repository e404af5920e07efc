#include "router/dispatch/generation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "router/dispatch/client_status.h"
#include "router/field_at_fault.h"

namespace baton::router {
namespace {

// As logs have it: by the id that workers know, and the client's own.
std::string NameOf(const GenerationSpec& spec) {
  const std::string id = absl::StrCat("request ", spec.id.ToString());
  return spec.client_id.empty() ? id : absl::StrCat(id, " (X-Request-Id ", spec.client_id, ")");
}

}  // namespace

Generation::Generation(GenerationEnvironment* environment, GenerationSpec spec,
                       std::shared_ptr<GenerationSink> sink, std::function<void()> on_end)
    : environment_(environment),
      spec_(std::move(spec)),
      sink_(std::move(sink)),
      on_end_(std::move(on_end)),
      tracker_(environment->max_attempts),
      awaited_since_(spec_.arrival) {
  environment_->metrics->requests_running.Increment();
}

Generation::~Generation() = default;

void Generation::Start() {
  MutexLock lock(mutex_);
  if (sink_ == nullptr) return;
  if (spec_.starts_late) awaited_since_ = environment_->clock->Now();
  if (absl::Status status = StartAttempt(); !status.ok()) End(std::move(status));
}

void Generation::Cancel(absl::Status status) {
  MutexLock lock(mutex_);
  if (sink_ == nullptr) return;
  if (call_ != nullptr) call_->Cancel();
  End(std::move(status));
}

absl::StatusOr<Route> Generation::Choose(const Snapshot& snapshot) {
  RouteQuery query{.prompt_tokens = static_cast<uint32_t>(spec_.prompt_tokens->size()),
                   .prompt = *spec_.prompt_tokens,
                   .new_tokens = spec_.max_tokens.value_or(1),
                   .ticket = environment_->tickets++,
                   .now = environment_->clock->Now()};
  using Shun = AttemptTracker::Shun;
  absl::StatusOr<Route> route;
  for (const Shun shun : {Shun::kAllInvolved, Shun::kCulprits, Shun::kHopeless}) {
    const std::vector<WorkerId> avoid = tracker_.Avoid(shun);
    query.avoid = avoid;
    route = ChooseRoute(snapshot, query, *environment_->scorer);
    if (avoid.empty() || !absl::IsUnavailable(route.status())) break;
  }
  return route;
}

DecodeAttempt Generation::MakeAttempt(const Route& route) {
  DecodeAttempt attempt;
  attempt.id = {.request = spec_.id, .attempt = tracker_.Begin(route.decode->id)};
  attempt.prompt_tokens = spec_.prompt_tokens;
  attempt.sampling = spec_.sampling;
  const uint32_t room =
      route.decode->max_context_tokens == 0
          ? std::numeric_limits<int32_t>::max()
          : route.decode->max_context_tokens - static_cast<uint32_t>(spec_.prompt_tokens->size());
  attempt.sampling.max_tokens = spec_.max_tokens.value_or(room);
  for (const Worker* worker : route.prefill) attempt.prefill_workers.push_back(worker->id);
  attempt.timeout = spec_.deadline - environment_->clock->Now();
  return attempt;
}

// [PD-2] router: pick workers, open Decode.Generate
absl::Status Generation::StartAttempt() {
  const Clock::TimePoint started = environment_->clock->Now();
  const std::shared_ptr<const Snapshot> snapshot = environment_->registry->Current();
  const absl::StatusOr<Route> route = Choose(*snapshot);
  environment_->metrics->stage_duration[RouterStage::kRoute].Observe(
      Seconds(environment_->clock->Now() - started));
  BATON_RETURN_IF_ERROR(route.status());
  BATON_ASSIGN_OR_RETURN(text_, TextPipeline::Create(spec_.text));
  pending_ = {};
  end_ = {};
  last_token_.reset();

  const int64_t prompt_tokens = static_cast<int64_t>(spec_.prompt_tokens->size());
  decode_worker_ = route->decode->id;
  decode_lease_ = WorkLease(route->decode->open, prompt_tokens);
  if (!route->prefill.empty()) {
    prefill_lease_ = WorkLease(route->prefill.front()->open, prompt_tokens);
  }
  DecodeAttempt attempt = MakeAttempt(*route);
  spdlog::debug("{} attempt {}: decode {}, {} prefill workers to choose from", NameOf(spec_),
                attempt.id.attempt, route->decode->target, route->prefill.size());
  environment_->metrics->route_decisions.Increment();
  attempt_started_ = started;
  call_ =
      environment_->decode->Generate(route->decode->target, std::move(attempt), shared_from_this());
  return absl::OkStatus();
}

void Generation::OnDecodeMessage(uint32_t attempt, DecodeMessage message) {
  MutexLock lock(mutex_);
  if (sink_ == nullptr || attempt != tracker_.attempts()) return;
  if (message.handoff) end_.handoff = *std::move(message.handoff);
  const size_t scored = spec_.sampling.top_logprobs ? message.token_ids.size() : 0;
  if (message.logprobs.size() != scored) {
    call_->Cancel();
    OnAttemptFailed({.status = absl::DataLossError(absl::StrCat(
                         message.logprobs.size(), " tokens came with log-probabilities, ", scored,
                         " were to"))});
    return;
  }
  end_.usage = message.usage;
  end_.finish_reason = message.finish_reason;
  if (!message.token_ids.empty()) ObserveTokens(message.token_ids.size());
  PushTokens(std::move(message));
  if (!spec_.stream && pending_.token_ids.size() > spec_.max_held_tokens) {
    call_->Cancel();
    End(AtFault("logprobs", absl::InvalidArgumentError(absl::StrCat(
                                "the answer has more than ", spec_.max_held_tokens,
                                " tokens, and the log-probabilities of no more are held: ask for "
                                "less (max_tokens, n, top_logprobs), or for a stream"))));
    return;
  }
  if (text_->matched_stop().empty()) return;
  call_->Finish();
  EndOk();
}

void Generation::ObserveTokens(size_t count) {
  RouterMetrics& metrics = *environment_->metrics;
  const Clock::TimePoint now = environment_->clock->Now();
  metrics.generation_tokens.Increment(static_cast<double>(count));
  if (last_token_) {
    metrics.inter_token_latency.Observe(Seconds(now - *last_token_) / static_cast<double>(count));
  } else {
    end_.time_to_first_token = now - awaited_since_;
    metrics.time_to_first_token.Observe(Seconds(end_.time_to_first_token));
    metrics.stage_duration[RouterStage::kFirstToken].Observe(Seconds(now - attempt_started_));
    prefill_lease_.Release();
    sink_->OnFirstToken();
  }
  last_token_ = now;
}

// [PD-10] router: detokenize, stop strings, reasoning and tool calls, out to the client
void Generation::PushTokens(DecodeMessage message) {
  const std::vector<int32_t>& ids = message.token_ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    pending_.token_ids.push_back(ids[i]);
    std::optional<TokenLogprobs> logprobs;
    if (!message.logprobs.empty()) logprobs = std::move(message.logprobs[i]);
    if (text_->Push(ids[i], std::move(logprobs), &pending_)) continue;
    // Tokens behind the stop string were computed but are not part of the answer.
    end_.usage.completion_tokens -=
        static_cast<uint32_t>(std::min<size_t>(ids.size() - i - 1, end_.usage.completion_tokens));
    break;
  }
  if (spec_.stream && pending_.HasText()) EmitPending();
}

void Generation::EmitPending() {
  tracker_.Commit();
  pending_.usage = end_.usage;
  sink_->OnDelta(std::exchange(pending_, {}));
}

void Generation::OnDecodeEnd(uint32_t attempt, AttemptFailure outcome) {
  MutexLock lock(mutex_);
  if (sink_ == nullptr || attempt != tracker_.attempts()) return;
  call_ = nullptr;
  // Everything was said before the stream broke: that is a success.
  if (end_.finish_reason != FinishReason::kNone) {
    EndOk();
    return;
  }
  if (outcome.status.ok()) {
    outcome.status = absl::InternalError("the decode worker ended without a finish reason");
    outcome.detail.emplace().peer = decode_worker_;
  }
  OnAttemptFailed(outcome);
}

void Generation::OnAttemptFailed(const AttemptFailure& failure) {
  const AttemptTracker::Decision decision = tracker_.OnFailure(failure);
  if (decision.cool_down) {
    environment_->registry->OnRequestFailed(decision.culprit, environment_->clock->Now());
  }
  const std::string what = absl::StrCat(
      NameOf(spec_), " attempt ", tracker_.attempts(), " failed on ",
      decision.culprit.address.empty() ? decode_worker_.address : decision.culprit.address, ": ",
      failure.status.ToString(absl::StatusToStringMode::kWithNoExtraData));
  decode_lease_.Release();
  prefill_lease_.Release();
  // That nobody is left to try says less than why this attempt failed.
  const bool again = decision.retry && StartAttempt().ok();
  const std::optional<int64_t> held_back = environment_->failed_attempts.Next();
  spdlog::log(held_back ? spdlog::level::warn : spdlog::level::debug, "{}{}{}", what,
              again ? "; trying again" : "",
              held_back.value_or(0) > 0
                  ? absl::StrCat(" (and ", *held_back, " more, told at level debug)")
                  : "");
  if (again) {
    environment_->metrics->CountRetry(decision.leg, decision.reason);
    return;
  }
  End(ToClientStatus(failure, decode_worker_.address, spec_.deadline - spec_.arrival));
}

void Generation::EndOk() {
  using EndedBy = OutputParser::EndedBy;
  text_->Finish(end_.finish_reason == FinishReason::kLength ? EndedBy::kLimit : EndedBy::kModel,
                &pending_);
  end_.matched_stop = text_->matched_stop();
  if (!end_.matched_stop.empty()) end_.finish_reason = FinishReason::kStop;
  if (end_.finish_reason == FinishReason::kStop && text_->has_whole_tool_calls()) {
    end_.finish_reason = FinishReason::kToolCalls;
  }
  environment_->registry->OnRequestSucceeded(decode_worker_);
  environment_->registry->OnRequestSucceeded(
      {end_.handoff.prefill_address, end_.handoff.prefill_incarnation});
  End(absl::OkStatus());
}

void Generation::End(absl::Status status) {
  RouterMetrics& metrics = *environment_->metrics;
  metrics.requests_running.Decrement();
  metrics.CountRequest(spec_.endpoint, OutcomeOf(status));
  if (status.ok()) {
    metrics.request_duration.Observe(Seconds(environment_->clock->Now() - spec_.arrival));
  }
  end_.status = std::move(status);
  end_.attempts = tracker_.attempts();
  HandoffFigures& handoff = end_.handoff;
  if (handoff.decode_address.empty()) handoff.decode_address = decode_worker_.address;
  const std::shared_ptr<const Snapshot> snapshot = environment_->registry->Current();
  handoff.prefill_name = snapshot->NameOf({handoff.prefill_address, handoff.prefill_incarnation});
  handoff.decode_name = snapshot->NameOf(decode_worker_);
  if (!end_.status.ok()) pending_ = {};
  if (spec_.stream && end_.status.ok() && !pending_.IsEmpty()) EmitPending();
  std::exchange(sink_, nullptr)->OnEnd(std::move(pending_), end_);
  call_ = nullptr;
  decode_lease_.Release();
  prefill_lease_.Release();
  std::exchange(on_end_, nullptr)();
}

}  // namespace baton::router
