#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvtransfer/device_lane/fabric.h"

namespace baton::kvtransfer {

// Fabric of transport "nccl": a communicator for each pair of workers and generation of its lane.
// Two workers may share a card when each has its own NCCL_HOSTID. UNAVAILABLE, naming what is
// missing, without a card or libnccl.so.2.
absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric();

}  // namespace baton::kvtransfer
