#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvtransfer/device_lane/paired_link.h"

namespace baton::kvtransfer {

// Communicators of NCCL on the calling thread's device, non-blocking, so that they can be aborted
// at any time. The library is loaded now: a worker without it runs with the other transports.
// UNAVAILABLE naming what is missing: the library, a function, or a release that is recent enough.
absl::StatusOr<std::unique_ptr<CommunicatorMaker>> LoadNccl();

}  // namespace baton::kvtransfer
