#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kvtransfer/device_lane/fabrics.h"
#include "kvtransfer/fault/fault_plan.h"
#include "kvtransfer/sender.h"

namespace baton::prefill {

// The sending ends of a worker's transports.
class Transports {
 public:
  // One sender for each of `names`, faulty where the plan says so. INVALID_ARGUMENT for a name that
  // is unknown or cannot go with caches on `device`, UNAVAILABLE for one that this machine lacks.
  static absl::StatusOr<std::unique_ptr<Transports>> Make(const std::vector<std::string>& names,
                                                          const std::string& device,
                                                          const kvtransfer::PlaneFaults& faults);

  kvtransfer::Sender& sender() { return *sender_; }
  // Tries a transport towards a decode worker, whose gRPC server is at `address`; quick but for
  // nccl, which makes a communicator.
  absl::Status Probe(const std::string& transport, Incarnation receiver,
                     const std::string& address);

 private:
  Transports() = default;
  absl::StatusOr<std::unique_ptr<kvtransfer::Transport>> MakeTransport(const std::string& name);

  std::map<std::string, std::unique_ptr<kvtransfer::Fabric>> fabrics_;  // of device transports
  std::unique_ptr<kvtransfer::Sender> sender_;
};

}  // namespace baton::prefill
