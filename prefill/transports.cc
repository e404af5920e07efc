#include "prefill/transports.h"

#include <utility>

#include "common/status_macros.h"
#include "kvtransfer/device_lane/unix_lane.h"
#include "kvtransfer/fault/fault_transport.h"
#include "kvtransfer/grpc/lane_stream.h"
#include "kvtransfer/grpc/transfer_client.h"
#include "kvtransfer/manifest.h"
#include "kvtransfer/sender_switch.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/shm/wire.h"

namespace baton::prefill {

absl::StatusOr<std::unique_ptr<Transports>> Transports::Make(const std::vector<std::string>& names,
                                                             const kvtransfer::PlaneFaults& faults,
                                                             const rpc::Credentials& credentials) {
  std::unique_ptr<Transports> transports(new Transports(credentials));
  kvtransfer::SenderSwitch::Ways ways;
  for (const std::string& name : names) {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<kvtransfer::Transport> transport,
                           transports->MakeTransport(name));
    if (faults.active) {
      transport = kvtransfer::WithFaults(std::move(transport), kvtransfer::PlannedFaults(faults));
    }
    kvtransfer::SenderOptions options;
    kvtransfer::SenderSwitch::Way& way = ways[name];
    if (kvtransfer::IsDeviceTransport(name)) {
      options.frame_bytes = transport->capabilities().max_frame_bytes;
    }
    if (name == "cuda_ipc") {
      way.endpoint = [](Incarnation receiver) {
        return kvtransfer::UnixLaneEndpoint("cuda_ipc", receiver);
      };
    } else if (name == "shm") {
      way.endpoint = kvtransfer::shm::Endpoint;
    }
    way.sender = kvtransfer::MakeSender(options, std::move(transport));
  }
  transports->sender_ = std::make_unique<kvtransfer::SenderSwitch>(std::move(ways));
  return transports;
}

absl::StatusOr<std::unique_ptr<kvtransfer::Transport>> Transports::MakeTransport(
    const std::string& name) {
  if (name == "grpc") return kvtransfer::MakeGrpcTransport(credentials_);
  if (name == "shm") return kvtransfer::MakeShmTransport();
  BATON_ASSIGN_OR_RETURN(fabrics_[name], kvtransfer::MakeFabric(name));
  return kvtransfer::MakeLaneTransport(fabrics_[name].get(), LanesOf(name));
}

// Memory that is shared goes over a socket of the machine; nccl also reaches other machines.
kvtransfer::ConnectLane Transports::LanesOf(const std::string& transport) const {
  if (transport != "nccl") return kvtransfer::ConnectUnixLane;
  return [credentials = credentials_](std::string_view name, const std::string& endpoint,
                                      const kvtransfer::StagingMemory& own) {
    return kvtransfer::ConnectGrpcLane(name, endpoint, own.bytes.size(), credentials);
  };
}

absl::Status Transports::Probe(const std::string& transport, Incarnation receiver,
                               const std::string& address) {
  if (transport == "shm") return kvtransfer::ProbeShm(kvtransfer::shm::Endpoint(receiver));
  const auto fabric = fabrics_.find(transport);
  if (fabric == fabrics_.end()) return absl::OkStatus();
  return kvtransfer::ProbeLane(
      *fabric->second, LanesOf(transport),
      transport == "nccl" ? address : kvtransfer::UnixLaneEndpoint(transport, receiver));
}

}  // namespace baton::prefill
