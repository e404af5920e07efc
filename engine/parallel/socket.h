#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"
#include "common/host_port.h"

namespace baton::engine {

// Owns a TCP socket. Move-only. One thread sends and one receives at a time.
class Socket {
 public:
  using Clock = std::chrono::steady_clock;

  // UNAVAILABLE, naming address and reason, when nobody answers.
  static absl::StatusOr<Socket> Connect(const HostPort& address);
  static absl::StatusOr<Socket> Listen(const HostPort& address);

  Socket() = default;  // closed
  explicit Socket(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  bool open() const { return fd_.valid(); }
  int port() const;  // that it is bound to

  // Of a listening socket; DEADLINE_EXCEEDED when nobody connected.
  absl::StatusOr<Socket> Accept(Clock::time_point deadline) const;
  // All of it; an error once the peer has taken nothing for `kStuck`.
  absl::Status Send(std::span<const std::byte> bytes) const;
  // At most a few bytes, and only if there is room for them: never waits.
  void SendIfRoom(std::span<const std::byte> bytes) const;
  // What has arrived, at least one byte, waiting until the deadline; UNAVAILABLE when the peer has
  // closed the connection.
  absl::StatusOr<size_t> Receive(std::span<std::byte> into, Clock::time_point deadline) const;
  // Whether the peer has closed it and everything that it sent was received.
  bool Ended() const;
  // Nothing is sent any more; what was sent before still arrives.
  void EndSending() const;

  static constexpr std::chrono::seconds kStuck{5};

 private:
  static Socket Connected(Fd fd);

  Fd fd_;
};

}  // namespace baton::engine
