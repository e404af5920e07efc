#include "decode/transports.h"

#include <utility>

#include "common/status_macros.h"
#include "kvtransfer/device_lane/unix_lane.h"
#include "kvtransfer/manifest.h"
#include "kvtransfer/shm/unix_socket.h"

namespace baton::decode {

absl::StatusOr<std::unique_ptr<Transports>> Transports::Start(
    const std::vector<std::string>& names, kvtransfer::Receiver* receiver, Incarnation incarnation,
    kvtransfer::TransferService* service) {
  std::unique_ptr<Transports> transports(new Transports(service));
  for (const std::string& name : names) {
    if (name == "shm") {
      BATON_ASSIGN_OR_RETURN(transports->shm_,
                             kvtransfer::ShmService::Start(receiver, incarnation));
    } else if (kvtransfer::IsDeviceTransport(name)) {
      BATON_ASSIGN_OR_RETURN(std::unique_ptr<kvtransfer::Fabric> fabric,
                             kvtransfer::MakeFabric(name));
      Fd listener;
      if (name != "nccl") {
        BATON_ASSIGN_OR_RETURN(
            listener, kvtransfer::shm::Listen(kvtransfer::UnixLaneEndpoint(name, incarnation)));
      }
      BATON_ASSIGN_OR_RETURN(
          transports->lanes_[name],
          kvtransfer::LaneService::Start(fabric.get(), receiver, std::move(listener)));
      transports->fabrics_.push_back(std::move(fabric));
      if (name == "nccl") service->ServeLanes(name, transports->lanes_[name].get());
    }
  }
  return transports;
}

Transports::~Transports() {
  for (const auto& [name, lanes] : lanes_) service_->ServeLanes(name, nullptr);
}

}  // namespace baton::decode
