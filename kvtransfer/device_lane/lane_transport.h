#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "kvtransfer/device_lane/fabric.h"
#include "kvtransfer/device_lane/lane_channel.h"
#include "kvtransfer/transport.h"

// Role: the sending end of every device transport: frames lie in staging memory of the device, a
// lane for each endpoint moves them, a channel (lane_channel.h) is its control lane.
// Why: the order of groups, cancellation and new links after a fault are the same for all.
// Threading: as transport.h says; no thread of its own, so that poll_interval is short. The death
// of a peer ends its channel, which fails what is outstanding at the next Poll.

namespace baton::kvtransfer {

struct LaneTransportOptions {
  size_t group_bytes = kMaxGroupBytes;  // the largest frame
  size_t groups = 8;                    // staging memory, over all endpoints
  int peer_groups = 4;                  // of them to one endpoint; see kMaxGroupsInFlight
  // Lanes that are kept; the one that has been idle longest goes first, and when all are busy
  // frames wait. NCCL takes up to 100 MB of device memory for each.
  size_t lanes = 16;
};

// The control lane to an endpoint; `own` is the transport's staging memory.
using ConnectLane = std::function<absl::StatusOr<std::unique_ptr<LaneChannel>>(
    std::string_view transport, const std::string& endpoint, const StagingMemory& own)>;

// `fabric` outlives the transport.
absl::StatusOr<std::unique_ptr<Transport>> MakeLaneTransport(
    Fabric* fabric, ConnectLane connect, const LaneTransportOptions& options = {},
    const Clock& clock = Clock::Real());

// Whether a group of this process reaches the receiver at `endpoint` over the device: a nonce goes
// there and comes back as the answer. Takes as long as the making of a link, at most the fabric's
// patience; UNAVAILABLE says why not.
absl::Status ProbeLane(Fabric& fabric, const ConnectLane& connect, const std::string& endpoint);

}  // namespace baton::kvtransfer
