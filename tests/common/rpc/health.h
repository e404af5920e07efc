#pragma once

#include <future>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "grpcpp/generic/generic_stub.h"

namespace baton::rpc {

// grpc.health.v1.Health.Check, by its bytes: HealthCheckRequest{service = 1}, and in the response
// status = 1. Yields 1 SERVING or 2 NOT_SERVING; "": of the whole server.
inline absl::StatusOr<int> Health(const std::string& address, const std::string& service) {
  grpc::GenericStub stub(MakeChannel(address, ChannelKind::kControl));
  std::string request;
  if (!service.empty()) request = "\x0a" + std::string(1, service.size()) + service;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer request_bytes(&slice, 1);
  grpc::ClientContext context;
  SetTimeout(context, std::chrono::seconds(60));
  grpc::ByteBuffer response;
  std::promise<absl::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request_bytes,
                 &response, [&](grpc::Status status) { done.set_value(FromGrpc(status)); });
  if (absl::Status status = done.get_future().get(); !status.ok()) return status;
  grpc::Slice bytes;
  if (!response.DumpToSingleSlice(&bytes).ok() || bytes.size() < 2) {
    return absl::InternalError("not a HealthCheckResponse");
  }
  return bytes.begin()[1];
}

}  // namespace baton::rpc
