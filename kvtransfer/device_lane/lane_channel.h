#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"
#include "kvtransfer/device_lane/lane_messages.h"

namespace baton::kvtransfer {

// The first message of a connection, from the prefill end.
struct LaneHello {
  std::string transport;
  uint64_t bytes = 0;  // of its staging memory
  Fd memory;           // where the fabric shares it
};

// One end of the control lane of a pair of workers: carries LaneMessages in order, as WIRE.md says.
// Nothing blocks. Errors are UNAVAILABLE and for good: the peer is gone, takes nothing any more, or
// speaks another language. One thread.
class LaneChannel {
 public:
  virtual ~LaneChannel() = default;

  virtual absl::Status Send(const LaneMessage& message) = 0;
  // nullopt: nothing there now.
  using Message = std::variant<LaneMessage, LaneHello>;
  using Received = absl::StatusOr<std::optional<Message>>;
  virtual Received Receive() = 0;

  // Something to receive is shown by a descriptor that becomes readable, or by a call of `wake` on
  // any thread.
  virtual int descriptor() const { return -1; }
  virtual void SetWakeup(std::function<void()> /*wake*/) {}
};

// Messages as bytes.
std::string EncodeLaneHello(std::string_view transport, uint64_t bytes);
std::string EncodeLaneMessage(const LaneMessage& message);
// `passed` came along. UNAVAILABLE for bytes that are no message.
LaneChannel::Received DecodeLaneMessage(std::span<const std::byte> bytes, Fd passed);
inline constexpr size_t kMaxLaneMessageBytes = 40 + 512;

}  // namespace baton::kvtransfer
