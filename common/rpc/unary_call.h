#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/rpc/status.h"
#include "grpcpp/client_context.h"

namespace baton::rpc {

// Calls a unary method without blocking; `done` runs exactly once on a gRPC thread, at the latest
// when `timeout` has passed, and must not block. `start(grpc::ClientContext*, Response*, then)`
// calls the stub: stub.async()->GetInfo(context, &request, response, then); the request may go when
// this returns, stub and channel too.
template <typename Response, typename StartMethod>
void CallUnary(std::chrono::nanoseconds timeout, StartMethod start,
               std::function<void(absl::StatusOr<Response>)> done) {
  struct Call {
    grpc::ClientContext context;
    Response response;
    std::function<void(absl::StatusOr<Response>)> done;
  };
  auto call = std::make_shared<Call>();
  call->done = std::move(done);
  SetTimeout(call->context, timeout);
  start(&call->context, &call->response, [call](const grpc::Status& status) {
    if (status.ok()) {
      call->done(std::move(call->response));
    } else {
      call->done(FromGrpc(status));
    }
  });
}

}  // namespace baton::rpc
