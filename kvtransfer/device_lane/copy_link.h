#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kvtransfer/device_lane/device_link.h"

// Links whose receiving end reaches the sender's staging memory and copies out of it. The sender
// says where the n-th group lies, the receiver how many it has copied; memory that the sender
// overwrites too early spoils the copy alone, which its receiver verifies.

namespace baton::kvtransfer {

// Copies into this process's memory, one after the other. The destructor waits for those that run.
class CopyEngine {
 public:
  virtual ~CopyEngine() = default;
  virtual void Start(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual uint64_t Finished() = 0;  // of those started
};

// `own` holds every group that is sent.
std::unique_ptr<DeviceLink> MakeCopySender(std::span<const std::byte> own, LinkSay say);
// `peer` is the sender's memory, which stays reachable as long as the link.
std::unique_ptr<DeviceLink> MakeCopyReceiver(std::span<const std::byte> peer,
                                             std::unique_ptr<CopyEngine> engine, LinkSay say);

}  // namespace baton::kvtransfer
