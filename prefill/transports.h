#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/rpc/credentials.h"
#include "kvtransfer/device_lane/fabrics.h"
#include "kvtransfer/device_lane/lane_transport.h"
#include "kvtransfer/fault/fault_plan.h"
#include "kvtransfer/sender.h"

namespace baton::prefill {

// The sending ends of a worker's transports.
class Transports {
 public:
  // One sender for each of `names`, faulty where the plan says so; `credentials` are for what goes
  // over gRPC. UNAVAILABLE for one that this machine lacks.
  static absl::StatusOr<std::unique_ptr<Transports>> Make(const std::vector<std::string>& names,
                                                          const kvtransfer::PlaneFaults& faults,
                                                          const rpc::Credentials& credentials);

  kvtransfer::Sender& sender() { return *sender_; }
  // Tries a transport towards a decode worker, whose gRPC server is at `address`; quick but for
  // nccl, which makes a communicator.
  absl::Status Probe(const std::string& transport, Incarnation receiver,
                     const std::string& address);

 private:
  explicit Transports(const rpc::Credentials& credentials) : credentials_(credentials) {}
  absl::StatusOr<std::unique_ptr<kvtransfer::Transport>> MakeTransport(const std::string& name);

  // How a lane of the transport is connected.
  kvtransfer::ConnectLane LanesOf(const std::string& transport) const;

  const rpc::Credentials credentials_;
  std::map<std::string, std::unique_ptr<kvtransfer::Fabric>> fabrics_;  // of device transports
  std::unique_ptr<kvtransfer::Sender> sender_;
};

}  // namespace baton::prefill
