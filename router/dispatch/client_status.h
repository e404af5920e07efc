#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "router/dispatch/attempt_tracker.h"

namespace baton::router {

// What a client hears of an attempt that failed and is not replaced. The words of a transport name
// addresses inside the cluster and errors of sockets: they are for the log. `limit` is what the
// request as a whole had.
absl::Status ToClientStatus(const AttemptFailure& failure, std::chrono::nanoseconds limit);

}  // namespace baton::router
