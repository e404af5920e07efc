#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvtransfer/device_lane/fabric.h"

namespace baton::kvtransfer {

// Fabric of transport "cuda_ipc": staging memory that processes of one machine share; the receiver
// copies out of the sender's, over NVLink when the cards differ. UNAVAILABLE without a card.
absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaIpcFabric();

}  // namespace baton::kvtransfer
