#include "worker/control_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "kvtransfer/grpc/handshake.h"

namespace baton::worker {
namespace {

// Of their own: while a transport is tried, gRPC's threads may have its messages to deliver. Two,
// so that a peer that takes its time holds up nobody; the queue is as long as a large cluster.
constexpr int kHandshakeThreads = 2;
constexpr size_t kQueuedHandshakes = 64;

v1::WorkerLoad ToProto(const WorkerLoad& load) {
  v1::WorkerLoad proto;
  proto.set_running_requests(static_cast<uint32_t>(load.running));
  proto.set_queued_requests(static_cast<uint32_t>(load.waiting));
  proto.set_queued_tokens(static_cast<uint64_t>(load.waiting_tokens));
  proto.set_pages_total(static_cast<uint64_t>(load.cache.pages_total));
  // The prefix cache gives its pages up as soon as they are wanted.
  proto.set_pages_free(static_cast<uint64_t>(load.cache.pages_free + load.cache.pages_prefix));
  return proto;
}

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpc(status));
  return reactor;
}

}  // namespace

ControlService::ControlService(Role& role, WorkerMetrics& metrics, std::function<void()> on_drain)
    : role_(role),
      metrics_(metrics),
      on_drain_(std::move(on_drain)),
      handshakes_(kQueuedHandshakes) {}

ControlService::~ControlService() { Stop(); }

void ControlService::Begin(const v1::GetInfoResponse& info, const kvtransfer::Manifest& manifest) {
  info_ = info;
  manifest_ = manifest;
  for (int i = 0; i < kHandshakeThreads; ++i) {
    handshake_threads_.emplace_back([this] { AnswerHandshakes(); });
  }
  ready_ = true;
  begun_ = true;
}

void ControlService::Stop() {
  handshakes_.Close();  // the server has waited for those in line
  handshake_threads_.clear();
}

grpc::ServerUnaryReactor* ControlService::GetInfo(grpc::CallbackServerContext* context,
                                                  const v1::GetInfoRequest* /*request*/,
                                                  v1::GetInfoResponse* response) {
  if (!begun_) return Finish(context, StillLoading());
  *response = info_;
  response->set_ready(ready_);
  *response->mutable_load() = ToProto(role_.load());
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlService::Handshake(grpc::CallbackServerContext* context,
                                                    const v1::HandshakeRequest* request,
                                                    v1::HandshakeResponse* response) {
  if (!begun_) return Finish(context, StillLoading());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!handshakes_.TryPush({context, request, response, reactor})) {
    const absl::Status full = absl::ResourceExhaustedError(
        absl::StrCat(kQueuedHandshakes, " handshakes wait for this worker already"));
    metrics_.handshakes[OutcomeOf(full)].Increment();
    reactor->Finish(rpc::ToGrpc(full));
  }
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Drain(grpc::CallbackServerContext* context,
                                                const v1::DrainRequest* /*request*/,
                                                v1::DrainResponse* /*response*/) {
  if (!begun_) return Finish(context, StillLoading());
  on_drain_();
  return Finish(context, absl::OkStatus());
}

void ControlService::AnswerHandshakes() {
  while (const auto asked = handshakes_.Pop()) {
    // Nobody waits for a trial any more whose caller has given up in line.
    asked->reactor->Finish(asked->context->IsCancelled()
                               ? grpc::Status::CANCELLED
                               : rpc::ToGrpc(Answer(*asked->request, asked->response)));
  }
}

absl::Status ControlService::Answer(const v1::HandshakeRequest& request,
                                    v1::HandshakeResponse* response) {
  absl::StatusOr<v1::HandshakeResponse> answer =
      kvtransfer::AnswerHandshake(manifest_, request, [&](const std::string& transport) {
        return role_.TryTransport(transport, request.caller());
      });
  metrics_.handshakes[OutcomeOf(answer.status())].Increment();
  if (!answer.ok()) return answer.status();
  kvtransfer::CountTransports(*answer, metrics_);
  *response = *std::move(answer);
  *response->mutable_self() = info_.self();
  return absl::OkStatus();
}

}  // namespace baton::worker
