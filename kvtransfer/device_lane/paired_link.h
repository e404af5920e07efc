#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/device_lane/device_link.h"

// Links over a library that pairs the sends of one process with the receives of another by their
// order alone, as NCCL does.

namespace baton::kvtransfer {

// One end of a communicator of two. Nothing blocks. The destructor aborts what has not ended: the
// memory of sends and receives is not touched any more afterwards.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Whether the last call has taken effect; while it has not, nothing else may be called. At first
  // that is the joining of both ends. UNAVAILABLE when the communicator is broken, for good.
  virtual absl::StatusOr<bool> Ready() = 0;
  // Enqueues a group on the device.
  virtual absl::Status Send(std::span<const std::byte> bytes) = 0;
  virtual absl::Status Receive(std::span<std::byte> bytes) = 0;
  // Marks the end of what is enqueued; how many marks the device has passed.
  virtual void Mark() = 0;
  virtual uint64_t Passed() = 0;
};

class CommunicatorMaker {
 public:
  virtual ~CommunicatorMaker() = default;
  // Names a communicator: made by one end, carried to the other.
  virtual absl::StatusOr<std::string> NewId() = 0;
  enum class End { kSender, kReceiver };
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Join(const std::string& id, End end) = 0;
};

// The receiving end names the communicator. `maker` outlives the link.
std::unique_ptr<DeviceLink> MakePairedLink(CommunicatorMaker* maker, CommunicatorMaker::End end,
                                           LinkSay say);

}  // namespace baton::kvtransfer
