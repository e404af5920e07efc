#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kvtransfer/device_lane/fabrics.h"
#include "kvtransfer/device_lane/lane_service.h"
#include "kvtransfer/grpc/transfer_service.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/shm/shm_service.h"

namespace baton::decode {

// The receiving ends of a worker's transports, apart from the one that its gRPC server has.
class Transports {
 public:
  // One end for each of `names` but grpc. Lanes that do not come over a socket of the machine come
  // to `service`; it and `receiver` outlive them. UNAVAILABLE names a transport that this machine
  // lacks, or a socket that cannot be had; RESOURCE_EXHAUSTED: the device has no room for staging.
  static absl::StatusOr<std::unique_ptr<Transports>> Start(const std::vector<std::string>& names,
                                                           kvtransfer::Receiver* receiver,
                                                           Incarnation incarnation,
                                                           kvtransfer::TransferService* service);
  ~Transports();

 private:
  explicit Transports(kvtransfer::TransferService* service) : service_(service) {}

  kvtransfer::TransferService* const service_;

  std::unique_ptr<kvtransfer::ShmService> shm_;  // null when it is not asked for
  std::vector<std::unique_ptr<kvtransfer::Fabric>> fabrics_;
  std::map<std::string, std::unique_ptr<kvtransfer::LaneService>> lanes_;  // by transport
};

}  // namespace baton::decode
