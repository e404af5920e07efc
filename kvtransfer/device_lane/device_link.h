#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

// What a device transport (NCCL, CUDA IPC) has to fill in: the copy of one group from the staging
// memory of a prefill worker's device to that of a decode worker's. Everything else - who goes
// when, cancellation, faults - is the lane's (lane_sender.h, lane_receiver.h).

namespace baton::kvtransfer {

// With less than half of it links are not filled.
inline constexpr size_t kMaxGroupBytes = size_t{32} << 20;

// Of one lane, each from its offer until it is declined or has run at the sending end.
inline constexpr size_t kMaxGroupsInFlight = 8;

// One end of a link between two processes, in one direction, used by one thread. Groups have no
// names on the device: the n-th Send of one end meets the n-th Receive of the other, and when the
// two differ neither ever ends. Nothing here blocks.
class DeviceLink {
 public:
  // Aborts what has not ended; the staging memory is not touched any more afterwards.
  virtual ~DeviceLink() = default;

  // Enqueues a group. `sequence` is for diagnosis: a link cannot send it. The memory stays as it is
  // until the group counts as done.
  virtual void Send(uint64_t sequence, std::span<const std::byte> staging) = 0;
  virtual void Receive(uint64_t sequence, std::span<std::byte> staging) = 0;

  // How many groups of this end are done, in their order; UNAVAILABLE when the link is broken, for
  // good. A received group that counts is visible to whoever reads the staging memory.
  virtual absl::StatusOr<uint64_t> Done() = 0;

  // What the other end said, once, in whatever order. Bytes that may be anything.
  virtual void OnMessage(std::string_view) {}
};

// Carries a few bytes to the other end's OnMessage, for as long as the link lives.
using LinkSay = std::function<void(std::string)>;

// Both ends create the link of a generation, neither before the other has left the one before.
// One that cannot work says so as broken.
using DeviceLinkFactory =
    std::function<std::unique_ptr<DeviceLink>(uint64_t generation, LinkSay say)>;

}  // namespace baton::kvtransfer
