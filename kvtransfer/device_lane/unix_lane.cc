#include "kvtransfer/device_lane/unix_lane.h"

#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "kvtransfer/shm/unix_socket.h"

namespace baton::kvtransfer {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class UnixLane final : public LaneChannel {
 public:
  explicit UnixLane(Fd socket) : socket_(std::move(socket)) {}

  absl::Status Send(const LaneMessage& message) override {
    return shm::Send(socket_, BytesOf(EncodeLaneMessage(message)));
  }
  Received Receive() override {
    std::array<std::byte, kMaxLaneMessageBytes> message;
    absl::StatusOr<std::optional<shm::Received>> received = shm::Receive(socket_, message);
    if (!received.ok()) return received.status();
    if (!received->has_value()) return std::nullopt;
    return DecodeLaneMessage(std::span(message).first((*received)->bytes),
                             std::move((*received)->passed));
  }
  int descriptor() const override { return socket_.get(); }

 private:
  const Fd socket_;
};

}  // namespace

std::string UnixLaneEndpoint(std::string_view transport, Incarnation receiver) {
  return absl::StrFormat("baton-kv-%s-%016x", transport, receiver);
}

absl::StatusOr<std::unique_ptr<LaneChannel>> ConnectUnixLane(std::string_view transport,
                                                             const std::string& endpoint,
                                                             const StagingMemory& own) {
  absl::StatusOr<Fd> socket = shm::Connect(endpoint);
  if (!socket.ok()) return socket.status();
  absl::Status sent =
      shm::Send(*socket, BytesOf(EncodeLaneHello(transport, own.bytes.size())), own.exported.get());
  if (!sent.ok()) return sent;
  return MakeUnixLane(*std::move(socket));
}

std::unique_ptr<LaneChannel> MakeUnixLane(Fd socket) {
  return std::make_unique<UnixLane>(std::move(socket));
}

}  // namespace baton::kvtransfer
