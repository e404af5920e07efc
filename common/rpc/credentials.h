#pragma once

#include <memory>

#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

// The one place that decides how connections are secured. Plain text for now: run the cluster on a
// network of its own.

namespace baton::rpc {

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials();
std::shared_ptr<grpc::ServerCredentials> ServerCredentials();

}  // namespace baton::rpc
