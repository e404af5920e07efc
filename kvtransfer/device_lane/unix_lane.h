#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kvtransfer/device_lane/fabric.h"
#include "kvtransfer/device_lane/lane_channel.h"

namespace baton::kvtransfer {

// Lanes between processes of one machine: a Unix socket, over which a descriptor of memory can go.

// The name that a receiver of this transport listens at.
std::string UnixLaneEndpoint(std::string_view transport, Incarnation receiver);

// Connects and says Hello. UNAVAILABLE when nobody listens.
absl::StatusOr<std::unique_ptr<LaneChannel>> ConnectUnixLane(std::string_view transport,
                                                             const std::string& endpoint,
                                                             const StagingMemory& own);
// Of a connection that was made to this end.
std::unique_ptr<LaneChannel> MakeUnixLane(Fd socket);

}  // namespace baton::kvtransfer
