#pragma once

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "baton/v1/common.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

// absl::Status <-> grpc::Status, failure details, deadlines. All functions are thread-safe.

namespace baton::rpc {

// Codes map one to one. Payloads travel as details of a google.rpc.Status in
// grpc-status-details-bin, so that any client can read those whose type it knows.
grpc::Status ToGrpc(const absl::Status& status);
// What ToGrpc was given. Unreadable details are dropped: code and message are still right.
absl::Status FromGrpc(const grpc::Status& status);

// Says where an attempt failed. Replaces an earlier detail; OK statuses carry none.
void AttachFailureDetail(const v1::FailureDetail& detail, absl::Status& status);
std::optional<v1::FailureDetail> GetFailureDetail(const absl::Status& status);

// A timeout at or below zero has expired already.
void SetTimeout(grpc::ClientContext& context, std::chrono::nanoseconds timeout);
// What is left of the caller's deadline, at least 0; nullopt when the caller set none. Forward
// this, not an absolute time: clocks of two machines differ.
std::optional<std::chrono::nanoseconds> RemainingTime(const grpc::ServerContextBase& context);

}  // namespace baton::rpc
