#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/fd.h"
#include "kvtransfer/device_lane/device_link.h"
#include "kvtransfer/record_mover.h"

namespace baton::kvtransfer {

// Memory of a device that groups lie in.
struct StagingMemory {
  std::shared_ptr<std::byte> owner;
  std::span<std::byte> bytes;  // aligned to 256
  Fd exported;                 // for the peers of fabrics that share memory; else invalid
};

// Role: what a device transport is made of; lane_transport.h and lane_service.h make a transport of
// it. Why: NCCL, CUDA IPC and what stands for them where there is no device differ in nothing else.
// Threading: thread-safe; what it hands out is each used by one thread.
class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual const std::string& name() const = 0;  // as in Manifest::transports
  // How long a group may take, with the making of its link (LaneOptions::patience).
  virtual std::chrono::nanoseconds patience() const = 0;

  // RESOURCE_EXHAUSTED when the device has not so much left.
  virtual absl::StatusOr<StagingMemory> Allocate(size_t bytes) = 0;
  virtual std::unique_ptr<RecordMover> NewMover() = 0;

  // The two ends of links over one connection. `own` outlives the links; `memory` is what the peer
  // has exported, of `bytes` as it says. UNAVAILABLE when it cannot be reached from here.
  virtual DeviceLinkFactory SenderEnd(const StagingMemory& own) = 0;
  virtual absl::StatusOr<DeviceLinkFactory> ReceiverEnd(const Fd& memory, uint64_t bytes) = 0;
};

}  // namespace baton::kvtransfer
