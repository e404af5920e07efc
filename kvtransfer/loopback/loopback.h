#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kvtransfer/executor.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// Role: a transport within one process, for tests and for clusters in one process.
// Why: everything above the transport can be tested without sockets, in any order of events.
// Threading: thread-safe; the transports it makes are used as transport.h says. Frames are
// delivered by the executor: inline (synchronous), on a thread, or in whatever order a test's
// executor picks. The executor outlives the network and the network outlives its transports.
class LoopbackNetwork {
 public:
  explicit LoopbackNetwork(Executor* deliveries);
  ~LoopbackNetwork();

  // Frames to `endpoint` go to `receiver` from now on. ALREADY_EXISTS if taken.
  absl::Status Attach(const std::string& endpoint, Receiver* receiver);
  // Like the death of the receiving process: what has not been delivered fails with UNAVAILABLE.
  // Returns when the receiver is no longer being called; not to be called by that receiver.
  void Detach(const std::string& endpoint);

  // The end of one sender. Destroyed with no post outstanding.
  std::unique_ptr<Transport> Connect();

  struct Routes;

 private:
  Executor* const deliveries_;
  const std::shared_ptr<Routes> routes_;
};

}  // namespace baton::kvtransfer
