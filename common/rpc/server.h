#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/credentials.h"
#include "grpcpp/impl/service_type.h"

namespace baton::rpc {

struct ServerOptions {
  std::string listen = {};                    // host:port; port 0 picks one
  std::vector<grpc::Service*> services = {};  // must outlive the server; not owned
  // Fully qualified names of `services` ("baton.v1.Decode"), whose health is reported one by one.
  std::vector<std::string> service_names = {};
  bool serving = true;  // health at the start; false: until SetServing(true)
  // What the server holds for its clients, most of it messages that are being received. gRPC looks
  // at the length of a message when all of it is there, whoever sent it, so that without a limit
  // one call could fill the memory. Beyond it calls of any client end with RESOURCE_EXHAUSTED.
  int64_t max_buffered_bytes = int64_t{1} << 30;
  std::shared_ptr<grpc::ServerCredentials> credentials = Credentials().server;
};

// A gRPC server with grpc.health.v1 and reflection. Thread-safe.
class GrpcServer {
 public:
  // Serves from the moment it returns. INVALID_ARGUMENT when `listen` is no host:port; UNAVAILABLE,
  // naming the address, when it cannot be bound: a port that another process listens on is an
  // error, never shared.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const ServerOptions& options);
  // Shutdown(0).
  ~GrpcServer();

  // The bound port.
  int port() const;

  // Health of "" and of every service. Without effect after Shutdown.
  void SetServing(bool serving);

  // Drain: reports NOT_SERVING and refuses new calls at once, waits up to `grace` for those that
  // run, cancels the rest and returns when the last has ended. Idempotent. Handlers must end once
  // their call is cancelled: the streaming helpers here do so by themselves. Not on a gRPC thread.
  void Shutdown(std::chrono::nanoseconds grace);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::rpc
