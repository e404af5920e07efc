#include "router/dispatch/grpc_decode_client.h"

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"
#include "common/rpc/unary_call.h"

namespace baton::router {
namespace {

using Stream = rpc::ServerStreamCall<v1::DecodeGenerateResponse>;

// How long a worker may take to hear that an answer is complete.
constexpr std::chrono::seconds kFinishTimeout{2};

class Call final : public DecodeCall {
 public:
  Call(const AttemptId& attempt, std::shared_ptr<v1::Decode::Stub> stub,
       std::shared_ptr<Stream> stream)
      : attempt_(attempt), stub_(std::move(stub)), stream_(std::move(stream)) {}

  void Cancel() override { stream_->Cancel(); }

  void Finish() override {
    v1::DecodeFinishRequest request;
    *request.mutable_attempt() = rpc::AttemptToProto(attempt_);
    rpc::CallUnary<v1::DecodeFinishResponse>(
        kFinishTimeout,
        [&](auto* context, auto* response, auto then) {
          stub_->async()->Finish(context, &request, response, std::move(then));
        },
        [stream = stream_](const absl::StatusOr<v1::DecodeFinishResponse>& answer) {
          if (!answer.ok()) stream->Cancel();
        });
  }

 private:
  const AttemptId attempt_;
  const std::shared_ptr<v1::Decode::Stub> stub_;
  const std::shared_ptr<Stream> stream_;
};

v1::DecodeGenerateRequest ToProto(const DecodeAttempt& attempt) {
  v1::DecodeGenerateRequest request;
  *request.mutable_attempt() = rpc::AttemptToProto(attempt.id);
  request.mutable_prompt_tokens()->Add(attempt.prompt_tokens->begin(),
                                       attempt.prompt_tokens->end());
  *request.mutable_sampling() = rpc::SamplingToProto(attempt.sampling);
  for (const WorkerId& worker : attempt.prefill_workers) {
    v1::WorkerRef* ref = request.add_prefill_workers();
    ref->set_address(worker.address);
    ref->set_incarnation(worker.incarnation);
  }
  return request;
}

FinishReason FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return FinishReason::kLength;
    default:
      return FinishReason::kNone;
  }
}

std::chrono::microseconds Micros(uint64_t microseconds) {
  return std::chrono::duration_cast<std::chrono::microseconds>(rpc::FromMicroseconds(microseconds));
}

HandoffFigures FromProto(const v1::ServedBy& served) {
  return {.prefill_address = served.prefill().address(),
          .prefill_incarnation = served.prefill().incarnation(),
          .decode_address = served.decode().address(),
          .decode_incarnation = served.decode().incarnation(),
          .bytes = served.handoff_bytes(),
          .prefill = Micros(served.prefill_us()),
          .transfer = Micros(served.handoff_us()),
          .decode_queue = Micros(served.decode_queue_us())};
}

DecodeMessage FromProto(const v1::DecodeGenerateResponse& response) {
  DecodeMessage message;
  message.token_ids.assign(response.token_ids().begin(), response.token_ids().end());
  for (const v1::TokenLogprobs& logprobs : response.logprobs()) {
    message.logprobs.push_back(rpc::LogprobsFromProto(logprobs));
  }
  message.usage = {.prompt_tokens = response.usage().prompt_tokens(),
                   .completion_tokens = response.usage().completion_tokens(),
                   .cached_tokens = response.usage().cached_tokens()};
  message.finish_reason = FromProto(response.finish_reason());
  if (response.has_served_by()) message.handoff = FromProto(response.served_by());
  return message;
}

AttemptFailure ToOutcome(absl::Status status) {
  AttemptFailure failure;
  if (const std::optional<v1::FailureDetail> detail = rpc::GetFailureDetail(status)) {
    AttemptFailure::Detail& named = failure.detail.emplace();
    if (detail->leg() == v1::FailureDetail::LEG_PREFILL) named.leg = FailedLeg::kPrefill;
    if (detail->leg() == v1::FailureDetail::LEG_TRANSFER) named.leg = FailedLeg::kTransfer;
    named.peer = {.address = detail->peer().address(), .incarnation = detail->peer().incarnation()};
  }
  failure.status = std::move(status);
  return failure;
}

}  // namespace

GrpcDecodeClient::~GrpcDecodeClient() {
  MutexLock lock(mutex_);
  while (open_calls_ > 0) idle_.Wait(mutex_);
}

// Workers found by name come under ever new addresses: with each new one, those are forgotten that
// nobody answers at. Calls under way do not need the link.
std::shared_ptr<v1::Decode::Stub> GrpcDecodeClient::StubFor(const std::string& target) {
  MutexLock lock(mutex_);
  ++open_calls_;
  if (const auto known = links_.find(target); known != links_.end()) return known->second.stub;
  absl::erase_if(links_, [](const auto& entry) {
    return entry.second.channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY;
  });
  Link& link = links_[target];
  link.channel = rpc::MakeChannel(target, rpc::ChannelKind::kControl, credentials_);
  link.stub = v1::Decode::NewStub(link.channel);
  return link.stub;
}

void GrpcDecodeClient::OnCallDone() {
  MutexLock lock(mutex_);
  if (--open_calls_ == 0) idle_.NotifyAll();
}

std::shared_ptr<DecodeCall> GrpcDecodeClient::Generate(const std::string& target,
                                                       DecodeAttempt attempt,
                                                       std::shared_ptr<DecodeCallHandler> handler) {
  const AttemptId id = attempt.id;
  const uint32_t number = id.attempt;
  auto stream = Stream::Create({.on_message =
                                    [handler, number](v1::DecodeGenerateResponse&& response) {
                                      handler->OnDecodeMessage(number, FromProto(response));
                                    },
                                .on_done =
                                    [this, handler, number](absl::Status status) {
                                      handler->OnDecodeEnd(number, ToOutcome(std::move(status)));
                                      OnCallDone();
                                    }});
  rpc::SetTimeout(stream->context(), attempt.timeout);
  const v1::DecodeGenerateRequest request = ToProto(attempt);
  const std::shared_ptr<v1::Decode::Stub> stub = StubFor(target);
  stream->Start([&](grpc::ClientContext* context, auto* reactor) {
    stub->async()->Generate(context, &request, reactor);
  });
  return std::make_shared<Call>(id, stub, std::move(stream));
}

}  // namespace baton::router
