#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "common/fd.h"
#include "kvtransfer/device_lane/fabric.h"
#include "kvtransfer/device_lane/lane_channel.h"
#include "kvtransfer/receiver.h"

namespace baton::kvtransfer {

struct LaneServiceOptions {
  size_t group_bytes = kMaxGroupBytes;  // as the senders'
  size_t groups = 8;                    // staging memory, over all senders
  // Further ones are closed at once. NCCL takes up to 100 MB of device memory for each.
  size_t connections = 32;
};

// Role: the receiving end of every device transport: takes channels, has a lane for each, hands
// what has landed in staging memory to the receiver. Why: as lane_transport.h. Threading: a thread
// of its own does all of it, senders in turn. A connection whose Hello does not come within a
// second is closed.
class LaneService {
 public:
  // `fabric` and `receiver` outlive the service. It takes the connections that come to `listener`
  // (unix_lane.h), which may be invalid. RESOURCE_EXHAUSTED without staging memory or descriptors.
  static absl::StatusOr<std::unique_ptr<LaneService>> Start(Fabric* fabric, Receiver* receiver,
                                                            Fd listener,
                                                            const LaneServiceOptions& options = {});
  // Waits for the frame that is being written; senders see the end of their connections.
  ~LaneService();

  // Takes a channel that was opened elsewhere, or closes it. Thread-safe.
  void Add(std::unique_ptr<LaneChannel> channel);

  // As of now; for tests.
  size_t connections() const;

 private:
  struct Impl;
  explicit LaneService(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::kvtransfer
