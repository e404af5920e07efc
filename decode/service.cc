#include "decode/service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "worker/role.h"

namespace baton::decode {
namespace {

using Writer = rpc::QueuedServerWriter<v1::DecodeGenerateResponse>;

v1::FinishReason ToProto(engine::Finish finish) {
  switch (finish) {
    case engine::Finish::kNo:
      return v1::FINISH_REASON_UNSPECIFIED;
    case engine::Finish::kStop:
      return v1::FINISH_REASON_STOP;
    case engine::Finish::kLength:
      return v1::FINISH_REASON_LENGTH;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::FailureDetail::Leg ToProto(Leg leg) {
  switch (leg) {
    case Leg::kDecode:
      return v1::FailureDetail::LEG_DECODE;
    case Leg::kPrefill:
      return v1::FailureDetail::LEG_PREFILL;
    case Leg::kTransfer:
      return v1::FailureDetail::LEG_TRANSFER;
  }
  return v1::FailureDetail::LEG_UNSPECIFIED;
}

v1::WorkerRef ToProto(const Peer& peer) {
  v1::WorkerRef ref;
  ref.set_address(peer.address);
  ref.set_incarnation(peer.incarnation);
  return ref;
}

v1::ServedBy ToProto(const ServedFigures& figures, const v1::WorkerRef& self) {
  v1::ServedBy served;
  *served.mutable_decode() = self;
  if (!figures.prefill.address.empty()) *served.mutable_prefill() = ToProto(figures.prefill);
  served.set_handoff_bytes(figures.handoff_bytes);
  served.set_prefill_us(rpc::ToMicroseconds(figures.prefill_time));
  served.set_handoff_us(rpc::ToMicroseconds(figures.handoff));
  served.set_decode_queue_us(rpc::ToMicroseconds(figures.queued));
  return served;
}

absl::Status WithDetail(absl::Status status, Leg leg, const v1::WorkerRef& peer) {
  v1::FailureDetail detail;
  detail.set_leg(ToProto(leg));
  *detail.mutable_peer() = peer;
  rpc::AttachFailureDetail(detail, status);
  return status;
}

class GenerateStream final : public TokenStream {
 public:
  GenerateStream(uint32_t prompt_tokens, v1::WorkerRef self)
      : prompt_tokens_(prompt_tokens), self_(std::move(self)) {}

  void Attach(std::shared_ptr<Writer> writer) { writer_ = std::move(writer); }

  void Send(const Delta& delta) override {
    v1::DecodeGenerateResponse response;
    response.mutable_token_ids()->Add(delta.tokens.begin(), delta.tokens.end());
    for (const TokenLogprobs& logprobs : delta.logprobs) {
      *response.add_logprobs() = rpc::LogprobsToProto(logprobs);
    }
    response.mutable_usage()->set_prompt_tokens(prompt_tokens_);
    response.mutable_usage()->set_completion_tokens(delta.completion_tokens);
    response.mutable_usage()->set_cached_tokens(delta.cached_tokens);
    response.set_finish_reason(ToProto(delta.finish));
    if (delta.served != nullptr) *response.mutable_served_by() = ToProto(*delta.served, self_);
    writer_->Write(std::move(response));
  }

  void End(absl::Status status, Leg leg, const Peer& peer) override {
    writer_->Finish(
        WithDetail(std::move(status), leg, peer.address.empty() ? self_ : ToProto(peer)));
  }

 private:
  const uint32_t prompt_tokens_;
  const v1::WorkerRef self_;
  std::shared_ptr<Writer> writer_;
};

GenerateRequest FromProto(const v1::DecodeGenerateRequest& proto) {
  GenerateRequest request;
  request.attempt = rpc::AttemptFromProto(proto.attempt());
  request.prompt.assign(proto.prompt_tokens().begin(), proto.prompt_tokens().end());
  request.sampling = rpc::SamplingFromProto(proto.sampling());
  for (const v1::WorkerRef& worker : proto.prefill_workers()) {
    request.prefill_workers.push_back({worker.address(), worker.incarnation()});
  }
  return request;
}

}  // namespace

grpc::ServerWriteReactor<v1::DecodeGenerateResponse>* DecodeService::Generate(
    grpc::CallbackServerContext* context, const v1::DecodeGenerateRequest* proto) {
  Decoder* const decoder = decoder_;
  if (decoder == nullptr) {
    const std::shared_ptr<Writer> refused = Writer::Create(1, nullptr);
    refused->Finish(worker::StillLoading());
    return refused->reactor();
  }
  GenerateRequest request = FromProto(*proto);
  request.timeout = rpc::RemainingTime(*context);
  const auto stream =
      std::make_shared<GenerateStream>(static_cast<uint32_t>(request.prompt.size()), self_);
  // Set before the reactor is returned, hence before on_done.
  const auto id = std::make_shared<Decoder::Id>(0);
  const size_t buffered = size_t{request.sampling.max_tokens} + 1;
  const std::shared_ptr<Writer> writer =
      Writer::Create(buffered, [decoder, id](const absl::Status& status) {
        if (!status.ok()) decoder->Cancel(*id, status);
      });
  stream->Attach(writer);
  request.stream = stream;
  absl::StatusOr<Decoder::Id> submitted = decoder->Submit(std::move(request));
  if (submitted.ok()) {
    *id = *submitted;
  } else {
    writer->Finish(WithDetail(submitted.status(), Leg::kDecode, self_));
  }
  return writer->reactor();
}

grpc::ServerUnaryReactor* DecodeService::Finish(grpc::CallbackServerContext* context,
                                                const v1::DecodeFinishRequest* request,
                                                v1::DecodeFinishResponse* /*response*/) {
  Decoder* const decoder = decoder_;
  if (decoder != nullptr) decoder->Finish(rpc::AttemptFromProto(request->attempt()));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(decoder != nullptr ? grpc::Status::OK : rpc::ToGrpc(worker::StillLoading()));
  return reactor;
}

void DecodeService::Begin(Decoder& decoder, const v1::WorkerRef& self) {
  self_ = self;
  decoder_ = &decoder;
}

}  // namespace baton::decode
