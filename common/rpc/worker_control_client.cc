#include "common/rpc/worker_control_client.h"

#include <future>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/unary_call.h"
#include "common/status_macros.h"
#include "grpcpp/channel.h"

namespace baton::rpc {
namespace {

// What gRPC says of a worker that cannot be reached, less the address, which it says once more.
// From one that wants a certificate a client in plain text hears no more than that it closed.
absl::Status InPlainWords(const absl::Status& status) {
  absl::string_view message = status.message();
  if (!absl::ConsumePrefix(&message, "failed to connect to all addresses; last error: ")) {
    return status;
  }
  for (int part = 0; part < 2; ++part) {  // a code and the address
    const size_t end = message.find(": ");
    if (end != absl::string_view::npos) message.remove_prefix(end + 2);
  }
  const bool closed =
      absl::StrContains(message, "Socket closed") || absl::StrContains(message, "Connection reset");
  return absl::Status(
      status.code(),
      absl::StrCat(message,
                   closed ? "; to workers that want certificates show one: --tls-cert-file" : ""));
}

absl::Status Named(const std::string& address, const absl::Status& status) {
  if (status.ok()) return status;
  return StatusBuilder(InPlainWords(status)) << address;
}

// Puts the worker's address in front of an error on its way to `done`.
template <typename Response>
std::function<void(absl::StatusOr<Response>)> Naming(
    std::string address, std::function<void(absl::StatusOr<Response>)> done) {
  return [address = std::move(address), done = std::move(done)](absl::StatusOr<Response> response) {
    if (!response.ok()) response = Named(address, response.status());
    done(std::move(response));
  };
}

// Runs `call(callback)` and waits for the callback.
template <typename Response, typename Call>
absl::StatusOr<Response> Await(Call call) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<Response>>>();
  auto future = promise->get_future();
  call([promise](absl::StatusOr<Response> response) { promise->set_value(std::move(response)); });
  return future.get();
}

}  // namespace

struct WorkerControlClient::Impl {
  explicit Impl(std::shared_ptr<grpc::Channel> to_worker)
      : channel(std::move(to_worker)), stub(v1::WorkerControl::NewStub(channel)) {}

  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::WorkerControl::Stub> stub;
};

WorkerControlClient::WorkerControlClient(std::string address, const Credentials& credentials)
    : WorkerControlClient(address, MakeChannel(address, ChannelKind::kControl, credentials)) {}

WorkerControlClient::WorkerControlClient(std::string address,
                                         std::shared_ptr<grpc::Channel> channel)
    : address_(std::move(address)), impl_(std::make_unique<Impl>(std::move(channel))) {}

WorkerControlClient::~WorkerControlClient() = default;

void WorkerControlClient::GetInfo(std::chrono::nanoseconds timeout,
                                  Callback<v1::GetInfoResponse> done) const {
  const v1::GetInfoRequest request;
  CallUnary<v1::GetInfoResponse>(
      timeout,
      [&](auto* context, auto* response, auto then) {
        impl_->stub->async()->GetInfo(context, &request, response, std::move(then));
      },
      Naming(address_, std::move(done)));
}

void WorkerControlClient::Handshake(const v1::HandshakeRequest& request,
                                    std::chrono::nanoseconds timeout,
                                    Callback<v1::HandshakeResponse> done) const {
  CallUnary<v1::HandshakeResponse>(
      timeout,
      [&](auto* context, auto* response, auto then) {
        impl_->stub->async()->Handshake(context, &request, response, std::move(then));
      },
      Naming(address_, std::move(done)));
}

void WorkerControlClient::Redial(std::chrono::nanoseconds patience,
                                 std::function<void()> then) const {
  if (impl_->channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) {
    then();
    return;
  }
  grpc::experimental::ChannelResetConnectionBackoff(impl_->channel.get());
  const v1::GetInfoRequest request;  // a call that waits is how one waits for a connection
  CallUnary<v1::GetInfoResponse>(
      patience,
      [&](auto* context, auto* response, auto then) {
        context->set_wait_for_ready(true);
        impl_->stub->async()->GetInfo(context, &request, response, std::move(then));
      },
      [then = std::move(then)](const absl::StatusOr<v1::GetInfoResponse>&) { then(); });
}

absl::StatusOr<v1::GetInfoResponse> WorkerControlClient::GetInfo(
    std::chrono::nanoseconds timeout) const {
  return Await<v1::GetInfoResponse>([&](auto done) { GetInfo(timeout, std::move(done)); });
}

absl::StatusOr<v1::HandshakeResponse> WorkerControlClient::Handshake(
    const v1::HandshakeRequest& request, std::chrono::nanoseconds timeout) const {
  return Await<v1::HandshakeResponse>(
      [&](auto done) { Handshake(request, timeout, std::move(done)); });
}

absl::Status WorkerControlClient::Drain(std::chrono::nanoseconds timeout) const {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  v1::DrainResponse response;
  return Named(address_, FromGrpc(impl_->stub->Drain(&context, v1::DrainRequest(), &response)));
}

}  // namespace baton::rpc
