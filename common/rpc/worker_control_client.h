#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "baton/v1/worker.pb.h"
#include "common/rpc/credentials.h"

namespace grpc {
class Channel;
}

namespace baton::rpc {

// Calls a worker's WorkerControl service. Thread-safe. Errors are the worker's own or those of the
// way there (UNAVAILABLE, DEADLINE_EXCEEDED), with "<address>: " in front.
class WorkerControlClient {
 public:
  // A control channel of its own to host:port, or one that other stubs use as well.
  explicit WorkerControlClient(std::string address, const Credentials& credentials = {});
  WorkerControlClient(std::string address, std::shared_ptr<grpc::Channel> channel);
  ~WorkerControlClient();

  // `done` runs exactly once, on a gRPC thread, even after this object is gone; it must not block.
  template <typename Response>
  using Callback = std::function<void(absl::StatusOr<Response>)>;
  void GetInfo(std::chrono::nanoseconds timeout, Callback<v1::GetInfoResponse> done) const;
  void Handshake(const v1::HandshakeRequest& request, std::chrono::nanoseconds timeout,
                 Callback<v1::HandshakeResponse> done) const;

  // Calls meet the last failure to connect until gRPC's next attempt is due, up to kReconnectMax
  // later. For callers who have just been told that the worker is there: if that is how things
  // stand, an attempt is made now. `then` runs when it has succeeded, when `patience` is over, or
  // at once; as Callbacks do.
  void Redial(std::chrono::nanoseconds patience, std::function<void()> then) const;

  // GetInfo and Handshake, waiting for the answer. Not on a gRPC thread.
  absl::StatusOr<v1::GetInfoResponse> GetInfo(std::chrono::nanoseconds timeout) const;
  absl::StatusOr<v1::HandshakeResponse> Handshake(const v1::HandshakeRequest& request,
                                                  std::chrono::nanoseconds timeout) const;
  absl::Status Drain(std::chrono::nanoseconds timeout) const;

  const std::string& address() const { return address_; }

 private:
  struct Impl;
  const std::string address_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::rpc
