#include "router/inference_service.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/log.h"
#include "common/log_limit.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "router/dispatch/client_request_id.h"
#include "router/field_at_fault.h"
#include "router/inference_request.h"

namespace baton::router {
namespace {

using GenerateStream = rpc::QueuedServerBidi<v1::GenerateRequest, v1::GenerateResponse>;
using ListModelsStream = rpc::QueuedServerBidi<v1::ListModelsRequest, v1::ListModelsResponse>;

// Of memory, which each delta takes some of beside its bytes.
constexpr size_t kMaxQueuedDeltas = 1 << 16;
// Between two looks at clients that may take nothing.
constexpr std::chrono::milliseconds kMinLookPeriod{10}, kMaxLookPeriod{500};
constexpr std::chrono::seconds kBetweenWarnings{10};

v1::Usage ToProto(const Usage& usage) {
  v1::Usage proto;
  proto.set_prompt_tokens(usage.prompt_tokens);
  proto.set_completion_tokens(usage.completion_tokens);
  proto.set_cached_tokens(usage.cached_tokens);
  return proto;
}

v1::ServedBy ToProto(const HandoffFigures& handoff) {
  v1::ServedBy proto;
  if (!handoff.prefill_address.empty()) {
    proto.mutable_prefill()->set_address(handoff.prefill_address);
    proto.mutable_prefill()->set_incarnation(handoff.prefill_incarnation);
  }
  proto.mutable_decode()->set_address(handoff.decode_address);
  proto.mutable_decode()->set_incarnation(handoff.decode_incarnation);
  proto.set_handoff_bytes(handoff.bytes);
  proto.set_prefill_us(handoff.prefill.count());
  proto.set_handoff_us(handoff.transfer.count());
  proto.set_decode_queue_us(handoff.decode_queue.count());
  proto.set_prefill_name(handoff.prefill_name);
  proto.set_decode_name(handoff.decode_name);
  return proto;
}

// The words name it, too; the payload is no detail that a client could read.
absl::Status WithoutField(absl::Status status) {
  status.ErasePayload(kFieldAtFault);
  return status;
}

class GrpcSink final : public GenerationSink {
 public:
  GrpcSink(std::shared_ptr<GenerateStream> stream, const RequestId& id)
      : stream_(std::move(stream)), id_(id) {}

  void OnDelta(GenerationDelta delta) override {
    v1::GenerateResponse response = Start();
    response.set_text(std::move(delta.text));
    response.set_reasoning_text(std::move(delta.reasoning));
    response.mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
    for (const AnswerToken& token : delta.answer_tokens) {
      *response.add_logprobs() = rpc::LogprobsToProto(token.logprobs);
    }
    *response.mutable_usage() = ToProto(delta.usage);
    stream_->Write(std::move(response));
  }

  void OnEnd(GenerationDelta, const GenerationEnd& end) override {
    if (end.status.ok()) {
      v1::GenerateResponse response = Start();
      *response.mutable_usage() = ToProto(end.usage);
      response.set_finish_reason(end.finish_reason == FinishReason::kLength
                                     ? v1::FINISH_REASON_LENGTH
                                     : v1::FINISH_REASON_STOP);
      response.set_matched_stop(end.matched_stop);
      *response.mutable_served_by() = ToProto(end.handoff);
      stream_->Write(std::move(response));
    }
    stream_->Finish(WithoutField(end.status));
  }

 private:
  v1::GenerateResponse Start() const {
    v1::GenerateResponse response;
    response.mutable_request_id()->set_high(id_.high);
    response.mutable_request_id()->set_low(id_.low);
    response.set_id(id_.ToString());
    return response;
  }

  const std::shared_ptr<GenerateStream> stream_;
  const RequestId id_;
};

// The first of that name; empty if there is none.
std::string_view MetadataOf(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

// One Generate. The callbacks of its stream own it.
class InferenceService::Call final : public std::enable_shared_from_this<Call> {
 public:
  Call(InferenceService* service, grpc::CallbackServerContext* context)
      : service_(service),
        context_(context),
        client_id_(ClientRequestId(MetadataOf(*context, "x-request-id"))) {}

  GenerateReactor* Start() {
    auto self = shared_from_this();
    stream_ = GenerateStream::Create(
        kMaxQueuedDeltas,
        {.on_message =
             [self](v1::GenerateRequest&& message) { self->OnMessage(std::move(message)); },
         .on_half_close =
             [self] {
               self->RefuseUnasked(absl::InvalidArgumentError(
                   "the call has no message that is a GenerateRequest (strings are UTF-8)"));
             },
         .on_done = [self](const absl::Status&) { self->OnDone(); }},
        static_cast<size_t>(service_->options_.max_unread_bytes));
    context_->AddInitialMetadata("x-request-id", client_id_.empty() ? id_.ToString() : client_id_);
    const absl::Status admitted = service_->Admit(*context_);
    if (!admitted.ok()) RefuseUnasked(admitted);
    {
      MutexLock lock(service_->mutex_);
      service_->calls_.emplace(this, self);
    }
    return stream_->reactor();
  }

  // Ends what a client would hold that says nothing or does not read: a call without a message
  // after a while, the generation once too much waits or the client is gone, and the whole call
  // once it has taken nothing for too long.
  void Look() {
    if (Clock::Real().Now() - began_ >= service_->options_.message_timeout) {
      RefuseUnasked(absl::DeadlineExceededError("the call's message did not arrive in time"));
    }
    std::shared_ptr<Generation> generation;
    {
      MutexLock lock(mutex_);
      if (done_) return;
      if (stream_->stalled() >= service_->options_.write_timeout) {
        static LogLimit limit(1, kBetweenWarnings);
        if (const auto held_back = limit.Next()) {
          spdlog::warn("a gRPC client has taken nothing for {} s, its call is cut off ({} more)",
                       Seconds(service_->options_.write_timeout), *held_back);
        }
        context_->TryCancel();
      }
      if (stream_->ending()) generation = generation_;
    }
    if (generation != nullptr) Cancel(*generation);
  }

 private:
  void Refuse(const absl::Status& status) {
    service_->metrics_->CountRequest(Endpoint::kGrpcGenerate, OutcomeOf(status));
    stream_->Finish(status);
  }

  // No message of the call is looked at from now on.
  void RefuseUnasked(const absl::Status& status) {
    if (!asked_.exchange(true)) Refuse(status);
  }

  // Only counted, by its memory: to look at it takes time, which the threads that tokenize have.
  void OnMessage(v1::GenerateRequest message) {
    if (asked_.exchange(true)) return;
    // A message is gRPC's to count only until it is here.
    auto held = std::make_shared<BodyBudget::Share>(&service_->waiting_bytes_);
    if (!held->Grow(MemoryOf(message))) {
      Refuse(absl::ResourceExhaustedError("too many bytes of requests wait to be tokenized"));
      return;
    }
    const Clock::TimePoint arrival = Clock::Real().Now();
    const std::chrono::nanoseconds timeout =
        rpc::RemainingTime(*context_).value_or(std::chrono::nanoseconds::max());
    std::function<void()> begin = [self = shared_from_this(), arrival, timeout, held,
                                   asked = std::move(message)] {
      self->Begin(asked, timeout - (Clock::Real().Now() - arrival));
    };
    if (!service_->waiting_.TryPush(std::move(begin))) {
      Refuse(absl::ResourceExhaustedError("too many requests wait to be tokenized"));
    }
  }

  // On a thread that tokenizes. The generation ends with the call, whichever comes first.
  void Begin(const v1::GenerateRequest& message, std::chrono::nanoseconds timeout) {
    if (done()) {
      Refuse(absl::CancelledError("the client has gone while the request waited"));
      return;
    }
    absl::StatusOr<GenerationRequest> asked = RequestFromProto(message);
    if (!asked.ok()) {
      Refuse(asked.status());
      return;
    }
    asked->id = id_;
    asked->client_id = client_id_;
    const absl::StatusOr<std::shared_ptr<Generation>> generation = service_->service_.load()->Start(
        *std::move(asked), std::make_shared<GrpcSink>(stream_, id_), timeout);
    if (!generation.ok()) {
      stream_->Finish(WithoutField(generation.status()));
      return;
    }
    {
      MutexLock lock(mutex_);
      if (!done_) generation_ = *generation;
      if (!done_) return;
    }
    Cancel(**generation);
  }

  bool done() {
    MutexLock lock(mutex_);
    return done_;
  }

  void OnDone() {
    {
      MutexLock lock(service_->mutex_);
      service_->calls_.erase(this);
    }
    std::shared_ptr<Generation> generation;
    {
      MutexLock lock(mutex_);
      done_ = true;
      generation = std::move(generation_);
    }
    if (generation != nullptr) Cancel(*generation);
  }

  static void Cancel(Generation& generation) {
    generation.Cancel(absl::CancelledError("the client ended the call"));
  }

  InferenceService* const service_;
  grpc::CallbackServerContext* const context_;  // until the stream is done
  const RequestId id_ = RequestId::Random();
  const std::string client_id_;
  std::shared_ptr<GenerateStream> stream_;
  const Clock::TimePoint began_ = Clock::Real().Now();
  std::atomic<bool> asked_ = false;  // or refused since it was not

  Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Generation> generation_ ABSL_GUARDED_BY(mutex_);
};

InferenceService::InferenceService(RouterMetrics* metrics, const InferenceOptions& options,
                                   const ApiKeys* keys)
    : metrics_(metrics),
      options_(options),
      keys_(keys),
      waiting_bytes_(options.max_waiting_bytes),
      waiting_(static_cast<size_t>(options.max_waiting)),
      ticker_(std::clamp<std::chrono::nanoseconds>(
                  std::min(options.write_timeout, options.message_timeout) / 4, kMinLookPeriod,
                  kMaxLookPeriod),
              [this] { LookAtCalls(); }) {
  // gRPC reads the message of a call that has one before it tells of the call: up to 4 MiB of
  // whoever shows no key. Of a call with many, which looks the same on the wire, it reads none.
  constexpr int kGenerate = 0, kListModels = 1;  // as the service lists them
  MarkMethodStreamed(kGenerate, nullptr);
  MarkMethodCallback(
      kGenerate, new grpc::internal::CallbackBidiHandler<v1::GenerateRequest, v1::GenerateResponse>(
                     [this](grpc::CallbackServerContext* context) {
                       return std::make_shared<Call>(this, context)->Start();
                     }));
  MarkMethodStreamed(kListModels, nullptr);
  MarkMethodCallback(
      kListModels,
      new grpc::internal::CallbackBidiHandler<v1::ListModelsRequest, v1::ListModelsResponse>(
          [this](grpc::CallbackServerContext* context) { return ListModels(*context); }));
  for (int i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this] {
      while (const std::optional<std::function<void()>> start = waiting_.Pop()) (*start)();
    });
  }
}

InferenceService::~InferenceService() {
  waiting_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void InferenceService::LookAtCalls() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, weak] : calls_) {
      if (std::shared_ptr<Call> call = weak.lock()) calls.push_back(std::move(call));
    }
  }
  for (const std::shared_ptr<Call>& call : calls) call->Look();
}

absl::Status InferenceService::Admit(const grpc::CallbackServerContext& context) const {
  if (keys_ != nullptr && !keys_->Accepts(MetadataOf(context, "authorization"))) {
    return absl::UnauthenticatedError("the authorization metadata holds no valid key");
  }
  return service_ == nullptr ? StillStarting() : absl::OkStatus();
}

// The request says nothing, so it need not have come.
InferenceService::ListModelsReactor* InferenceService::ListModels(
    const grpc::CallbackServerContext& context) const {
  const std::shared_ptr<ListModelsStream> stream = ListModelsStream::Create(1, {});
  const absl::Status admitted = Admit(context);
  if (admitted.ok()) {
    v1::ListModelsResponse models;
    models.add_models(service_.load()->model().name);
    stream->Write(std::move(models));
  }
  stream->Finish(admitted);
  return stream->reactor();
}

}  // namespace baton::router
