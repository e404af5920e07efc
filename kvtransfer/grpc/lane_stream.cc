#include "kvtransfer/grpc/lane_stream.h"

#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/server_stream.h"

namespace baton::kvtransfer {
namespace {

// Far more than groups of one lane have to say while one end is busy.
constexpr size_t kMaxQueued = 1024;

using ClientCall = rpc::BidiCall<v1::LaneMessage, v1::LaneMessage>;
using ServerCall = rpc::QueuedServerBidi<v1::LaneMessage, v1::LaneMessage>;

// What has come and was not received yet. Thread-safe.
class Inbox {
 public:
  void Push(v1::LaneMessage&& message) {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return;
    const size_t bytes = message.packet().size();
    if (messages_.size() == kMaxQueued || bytes > kMaxLaneMessageBytes) {
      ended_ = absl::UnavailableError(
          absl::StrCat("the peer says more than is listened to: ", messages_.size(),
                       " messages, then one of ", bytes, " bytes"));
    } else {
      messages_.push_back(std::move(*message.mutable_packet()));
    }
    if (wake_ != nullptr) wake_();
  }
  void End(const absl::Status& status) {
    MutexLock lock(mutex_);
    ended_.Update(absl::UnavailableError(absl::StrCat("the lane has ended: ", status.message())));
    if (wake_ != nullptr) wake_();
  }
  // Null: nobody is woken any more once this has returned.
  void SetWakeup(std::function<void()> wake) {
    MutexLock lock(mutex_);
    wake_ = std::move(wake);
  }
  LaneChannel::Received Take() {
    MutexLock lock(mutex_);
    if (messages_.empty()) {
      if (!ended_.ok()) return ended_;
      return std::nullopt;
    }
    const std::string packet = std::move(messages_.front());
    messages_.pop_front();
    return DecodeLaneMessage(std::as_bytes(std::span(packet)), Fd());
  }

 private:
  Mutex mutex_;
  std::deque<std::string> messages_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
};

v1::LaneMessage ToProto(std::string packet) {
  v1::LaneMessage message;
  message.set_packet(std::move(packet));
  return message;
}

// That a Hello names; empty for anything else.
std::string TransportOf(const std::string& packet) {
  const LaneChannel::Received said = DecodeLaneMessage(std::as_bytes(std::span(packet)), Fd());
  if (!said.ok() || !said->has_value()) return "";
  const auto* hello = std::get_if<LaneHello>(&**said);
  return hello == nullptr ? "" : hello->transport;
}

// Either end: packets go out by a call and come in through an inbox.
template <typename Call>
class StreamLane : public LaneChannel {
 public:
  absl::Status Send(const LaneMessage& message) override {
    return call_->Write(ToProto(EncodeLaneMessage(message)))
               ? absl::OkStatus()
               : absl::UnavailableError("the lane has ended");
  }
  Received Receive() override { return inbox_->Take(); }
  void SetWakeup(std::function<void()> wake) override { inbox_->SetWakeup(std::move(wake)); }

 protected:
  StreamLane(std::shared_ptr<Call> call, std::shared_ptr<Inbox> inbox)
      : inbox_(std::move(inbox)), call_(std::move(call)) {}

  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<Call> call_;
};

class ClientLane final : public StreamLane<ClientCall> {
 public:
  ClientLane(std::string_view transport, const std::string& endpoint, uint64_t bytes,
             const rpc::Credentials& credentials)
      : ClientLane(std::make_shared<Inbox>()) {
    call_->Write(ToProto(EncodeLaneHello(transport, bytes)));
    const auto stub =
        v1::Transfer::NewStub(rpc::MakeChannel(endpoint, rpc::ChannelKind::kControl, credentials));
    call_->Start([&](grpc::ClientContext* context, auto* reactor) {
      stub->async()->Lane(context, reactor);
    });
  }
  ~ClientLane() override { call_->Cancel(); }

 private:
  explicit ClientLane(const std::shared_ptr<Inbox>& inbox)
      : StreamLane(ClientCall::Create(
                       kMaxQueued,
                       {.on_message =
                            [inbox](v1::LaneMessage&& message) { inbox->Push(std::move(message)); },
                        .on_done = [inbox](const absl::Status& status) { inbox->End(status); }}),
                   inbox) {}
};

class ServerLane final : public StreamLane<ServerCall> {
 public:
  ServerLane(std::shared_ptr<ServerCall> call, std::shared_ptr<Inbox> inbox)
      : StreamLane(std::move(call), std::move(inbox)) {}
  ~ServerLane() override {
    inbox_->SetWakeup(nullptr);
    call_->Finish(absl::UnavailableError("the receiver has ended the lane"));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<LaneChannel>> ConnectGrpcLane(std::string_view transport,
                                                             const std::string& endpoint,
                                                             uint64_t bytes,
                                                             const rpc::Credentials& credentials) {
  return std::make_unique<ClientLane>(transport, endpoint, bytes, credentials);
}

grpc::ServerBidiReactor<v1::LaneMessage, v1::LaneMessage>* ServeGrpcLane(AcceptLane accept) {
  struct Opening {
    std::shared_ptr<ServerCall> call;  // until the lane is accepted
    const std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();
  };
  auto opening = std::make_shared<Opening>();
  opening->call = ServerCall::Create(
      kMaxQueued,
      {.on_message =
           [opening, accept = std::move(accept)](v1::LaneMessage&& message) {
             const auto call = std::exchange(opening->call, nullptr);
             const std::string transport = call == nullptr ? "" : TransportOf(message.packet());
             opening->inbox->Push(std::move(message));
             if (call == nullptr) return;
             std::unique_ptr<LaneChannel> lane = std::make_unique<ServerLane>(call, opening->inbox);
             absl::Status accepted = accept(transport, std::move(lane));
             if (!accepted.ok()) call->Finish(std::move(accepted));
           },
       .on_half_close =
           [opening] { opening->inbox->End(absl::UnavailableError("the sender has ended it")); },
       .on_done = [opening](const absl::Status& status) { opening->inbox->End(status); }});
  return opening->call->reactor();
}

}  // namespace baton::kvtransfer
