#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "router/dispatch/attempt_tracker.h"

namespace baton::router {

// What a client hears of an attempt on the worker `decode` that failed and is not replaced. The
// words of a connection name errors of sockets: they are for the log. `limit` is what the request
// as a whole had.
absl::Status ToClientStatus(const AttemptFailure& failure, const std::string& decode,
                            std::chrono::nanoseconds limit);

}  // namespace baton::router
