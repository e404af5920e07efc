#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/transport.h"

// Role: transport "shm": frames lie in shared memory of the sender and are copied out of it by the
// receiver; a Unix socket per endpoint (shm::Endpoint of wire.h) says which and brings the answers.
// Why: between processes of one machine nothing is copied through the kernel.
// Threading: as transport.h says; a thread of its own reads answers. The death of either process
// closes the socket, which fails what is outstanding at once. A receiver checks the copy that it
// made, so that a frame whose post was cancelled may be overwritten while it is being read. A
// single frame cannot be withdrawn: Cancel breaks the connection, and the next post opens another.

namespace baton::kvtransfer {

// UNAVAILABLE when this machine gives no shared memory.
absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport();

// Whether the receiver at `endpoint` reads what this process writes to shared memory: a nonce goes
// there and back. Takes well under a millisecond, at most `kProbeTimeout`; UNAVAILABLE says why
// not.
absl::Status ProbeShm(const std::string& endpoint);

}  // namespace baton::kvtransfer
