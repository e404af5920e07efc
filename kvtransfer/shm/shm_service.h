#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kvtransfer/receiver.h"

namespace baton::kvtransfer {

// Role: the receiving end of transport shm: takes connections at shm::Endpoint(receiver) and hands
// frames to the receiver where they lie, in the senders' memory.
// Why: one copy, from there to the cache; what is verified is what that copy has written, whatever
// a sender changes meanwhile.
// Threading: a transfer thread of its own does all of it, senders in turn, one frame each. A
// connection whose Hello does not come within a second is closed, as is one beyond 256 at once.
class ShmService {
 public:
  // `receiver` outlives the service. UNAVAILABLE when the endpoint cannot be had.
  static absl::StatusOr<std::unique_ptr<ShmService>> Start(Receiver* receiver,
                                                           Incarnation incarnation);
  // Waits for the frame that is being written; senders see the end of their connections.
  ~ShmService();

  // As of now; for tests.
  size_t connections() const;

 private:
  struct Impl;
  explicit ShmService(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::kvtransfer
