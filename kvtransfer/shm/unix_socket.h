#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"

// Sockets as far as transports within one machine need them.

namespace baton::kvtransfer::shm {

// What errno says about `what`, as UNAVAILABLE.
absl::Status ErrnoStatus(const std::string& what);

// SOCK_SEQPACKET, abstract namespace: the name goes with the last descriptor, so that nothing is
// left behind by a process that is killed. All sockets are non-blocking.
absl::StatusOr<Fd> Listen(const std::string& name);
absl::StatusOr<Fd> Connect(const std::string& name);

// Sends one message, whole or not at all, with `passed` attached when it is a descriptor (>= 0).
// UNAVAILABLE when the peer is gone or takes nothing now.
absl::Status Send(const Fd& socket, std::span<const std::byte> message, int passed = -1);

struct Received {
  size_t bytes = 0;
  Fd passed;  // when one came along
};
// nullopt: nothing there now. UNAVAILABLE: the peer is gone, or its message does not fit.
absl::StatusOr<std::optional<Received>> Receive(const Fd& socket, std::span<std::byte> message);

}  // namespace baton::kvtransfer::shm
