#include "kvtransfer/grpc/transfer_service.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/transfer.grpc.pb.h"
#include "common/gate.h"
#include "common/mutex.h"
#include "common/rpc/server_stream.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/grpc/lane_stream.h"
#include "kvtransfer/grpc/limits.h"
#include "kvtransfer/grpc/verdict_proto.h"

namespace baton::kvtransfer {
namespace {

using PushCall = rpc::QueuedServerBidi<v1::PushRequest, v1::PushResponse>;

// One Transfer.Push call. Thread-safe.
class Stream {
 public:
  void SetCall(std::shared_ptr<PushCall> call) {
    MutexLock lock(mutex_);
    call_ = std::move(call);
  }

  // A frame came. False when it is one too many.
  bool Enter() {
    MutexLock lock(mutex_);
    if (unanswered_ == kMaxUnansweredFrames) return false;
    ++unanswered_;
    return true;
  }

  bool dead() const {
    MutexLock lock(mutex_);
    return call_ == nullptr;
  }

  void Answer(v1::PushResponse response) {
    MutexLock lock(mutex_);
    --unanswered_;
    if (call_ == nullptr) return;
    call_->Write(std::move(response));
    FinishIfIdle();
  }

  // Ends the call at once; what has not been answered is dropped.
  void Finish(absl::Status status) {
    MutexLock lock(mutex_);
    if (call_ != nullptr) call_->Finish(std::move(status));
  }

  // Ends the call with `status` when everything that came is answered.
  void FinishWhenIdle(absl::Status status) {
    MutexLock lock(mutex_);
    if (!end_.has_value()) end_ = std::move(status);
    FinishIfIdle();
  }

  // The call is over: what is still queued of it is dropped.
  void OnDone() {
    MutexLock lock(mutex_);
    call_ = nullptr;
  }

 private:
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (end_.has_value() && unanswered_ == 0 && call_ != nullptr) call_->Finish(*end_);
  }

  mutable Mutex mutex_;
  std::shared_ptr<PushCall> call_ ABSL_GUARDED_BY(mutex_);  // null when over
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

struct TransferService::Impl final : v1::Transfer::CallbackService {
  Impl(Receiver* to, Executor* thread) : receiver(to), transfer_thread(thread) {}

  grpc::ServerBidiReactor<v1::PushRequest, v1::PushResponse>* Push(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::LaneMessage, v1::LaneMessage>* Lane(
      grpc::CallbackServerContext* context) override;
  absl::Status OnLane(const std::string& transport, std::unique_ptr<LaneChannel>&& channel);
  void OnFrame(const std::shared_ptr<Stream>& stream, v1::PushRequest&& request);
  void Verify(Stream& stream, const v1::PushRequest& request);

  Receiver* const receiver;
  Executor* const transfer_thread;
  Gate frames;  // tasks on the transfer thread are inside
  Mutex mutex;
  absl::flat_hash_set<std::shared_ptr<Stream>> streams ABSL_GUARDED_BY(mutex);
  std::map<std::string, LaneService*> lanes ABSL_GUARDED_BY(mutex);  // by transport
  bool stopped ABSL_GUARDED_BY(mutex) = false;
};

grpc::ServerBidiReactor<v1::PushRequest, v1::PushResponse>* TransferService::Impl::Push(
    grpc::CallbackServerContext*) {
  auto stream = std::make_shared<Stream>();
  auto call = PushCall::Create(
      kMaxUnansweredFrames,
      {.on_message = [this,
                      stream](v1::PushRequest&& request) { OnFrame(stream, std::move(request)); },
       .on_half_close = [stream] { stream->FinishWhenIdle(absl::OkStatus()); },
       .on_done =
           [this, stream](absl::Status) {
             stream->OnDone();
             MutexLock lock(mutex);
             streams.erase(stream);
           }});
  stream->SetCall(call);
  MutexLock lock(mutex);
  streams.insert(stream);
  if (stopped) stream->FinishWhenIdle(absl::UnavailableError("the worker is shutting down"));
  return call->reactor();
}

grpc::ServerBidiReactor<v1::LaneMessage, v1::LaneMessage>* TransferService::Impl::Lane(
    grpc::CallbackServerContext*) {
  return ServeGrpcLane(
      [this](const std::string& transport, std::unique_ptr<LaneChannel>&& channel) {
        return OnLane(transport, std::move(channel));
      });
}

absl::Status TransferService::Impl::OnLane(const std::string& transport,
                                           std::unique_ptr<LaneChannel>&& channel) {
  MutexLock lock(mutex);
  const auto it = lanes.find(transport);
  if (it == lanes.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no lanes of transport \"", transport, "\" here"));
  }
  it->second->Add(std::move(channel));
  return absl::OkStatus();
}

void TransferService::Impl::OnFrame(const std::shared_ptr<Stream>& stream,
                                    v1::PushRequest&& request) {
  if (!stream->Enter()) {
    stream->Finish(absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxUnansweredFrames, " frames wait for an answer")));
    return;
  }
  if (request.frame().size() > kMaxGrpcFrameBytes) {
    stream->Finish(absl::InvalidArgumentError(absl::StrCat(
        "a frame of ", request.frame().size(), " bytes, at most ", kMaxGrpcFrameBytes)));
    return;
  }
  // Shared, because std::function copies.
  auto pass = std::make_shared<Gate::Pass>(frames.TryEnter());
  auto frame = std::make_shared<v1::PushRequest>(std::move(request));
  transfer_thread->Run([this, stream, pass, frame] {
    if (*pass) Verify(*stream, *frame);
  });
}

// [PD-8] Decode: on a transfer thread, verifies a frame, writes its records, acknowledges.
void TransferService::Impl::Verify(Stream& stream, const v1::PushRequest& request) {
  v1::PushResponse response;
  if (!stream.dead()) {
    const std::span<const std::byte> frame = std::as_bytes(std::span(request.frame()));
    response.set_frame_sequence(PeekSequence(frame));
    response.set_verdict(VerdictToProto(receiver->OnFrame(frame, response.mutable_detail())));
  }
  stream.Answer(std::move(response));
}

TransferService::TransferService(Receiver* receiver, Executor* transfer_thread)
    : impl_(std::make_unique<Impl>(receiver, transfer_thread)) {}

TransferService::~TransferService() {
  impl_->frames.Close();
  while (!impl_->frames.WaitEmpty(std::chrono::hours(1))) {
  }
}

grpc::Service* TransferService::service() { return impl_.get(); }

void TransferService::ServeLanes(const std::string& transport, LaneService* service) {
  MutexLock lock(impl_->mutex);
  if (service != nullptr) {
    impl_->lanes[transport] = service;
  } else {
    impl_->lanes.erase(transport);
  }
}

void TransferService::Stop() {
  MutexLock lock(impl_->mutex);
  impl_->stopped = true;
  for (const auto& stream : impl_->streams) {
    stream->FinishWhenIdle(absl::UnavailableError("the worker is shutting down"));
  }
}

}  // namespace baton::kvtransfer
