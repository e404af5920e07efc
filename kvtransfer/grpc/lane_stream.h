#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "baton/v1/transfer.grpc.pb.h"
#include "common/rpc/credentials.h"
#include "kvtransfer/device_lane/lane_channel.h"

// The control lane of device transports whose workers may be on different machines: a call of
// baton.v1.Transfer.Lane, with the messages of lane_channel.h as they go over a socket.

namespace baton::kvtransfer {

// The prefill end; connects lazily to host:port and says Hello. Messages are there to be received
// as soon as gRPC has them.
absl::StatusOr<std::unique_ptr<LaneChannel>> ConnectGrpcLane(
    std::string_view transport, const std::string& endpoint, uint64_t bytes,
    const rpc::Credentials& credentials = {});

// Takes a lane of the transport that its Hello names. FAILED_PRECONDITION, and the channel stays
// with the caller, when there is none of it.
using AcceptLane = std::function<absl::Status(const std::string& transport,
                                              std::unique_ptr<LaneChannel>&& channel)>;

// The decode end: the reactor of one call. `accept` is called at most once, on a thread of gRPC's,
// and what it needs must live as long as the server.
grpc::ServerBidiReactor<v1::LaneMessage, v1::LaneMessage>* ServeGrpcLane(AcceptLane accept);

}  // namespace baton::kvtransfer
