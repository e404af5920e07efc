#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "baton/v1/decode.grpc.pb.h"
#include "common/mutex.h"
#include "common/rpc/credentials.h"
#include "router/dispatch/decode_client.h"

namespace baton::router {

// Thread-safe. The destructor waits until every call has ended, so cancel them first.
class GrpcDecodeClient final : public DecodeClient {
 public:
  explicit GrpcDecodeClient(const rpc::Credentials& credentials) : credentials_(credentials) {}
  ~GrpcDecodeClient() override;

  std::shared_ptr<DecodeCall> Generate(const std::string& target, DecodeAttempt attempt,
                                       std::shared_ptr<DecodeCallHandler> handler) override;

 private:
  std::shared_ptr<v1::Decode::Stub> StubFor(const std::string& target);
  void OnCallDone();

  const rpc::Credentials credentials_;
  Mutex mutex_;
  CondVar idle_;
  struct Link {
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<v1::Decode::Stub> stub;
  };
  absl::flat_hash_map<std::string, Link> links_ ABSL_GUARDED_BY(mutex_);
  int open_calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::router
