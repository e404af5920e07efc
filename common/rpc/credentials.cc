#include "common/rpc/credentials.h"

namespace baton::rpc {

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials() {
  return grpc::InsecureChannelCredentials();
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials() {
  return grpc::InsecureServerCredentials();
}

}  // namespace baton::rpc
