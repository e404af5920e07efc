#include "engine/parallel/socket.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton::engine {
namespace {

absl::Status Failed(const HostPort& address, const char* call, int error) {
  return absl::UnavailableError(
      absl::StrCat(address.host, ":", address.port, ": ", call, ": ", std::strerror(error)));
}

// Of connecting and of sending.
void BoundWaiting(int fd) {
  const timeval stuck{.tv_sec = Socket::kStuck.count(), .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &stuck, sizeof(stuck));
}

// Tries the addresses that a name stands for until one serves.
absl::StatusOr<Socket> FirstOf(const HostPort& address, int flags, const char* call,
                               const std::function<bool(int, const addrinfo&)>& serves) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(address.host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  int why = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Socket socket(Fd(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    BoundWaiting(socket.fd());
    if (socket.open() && serves(socket.fd(), *one)) return socket;
    why = errno;
  }
  return Failed(address, call, why);
}

// False when the deadline has passed.
bool WaitFor(int fd, int16_t events, Socket::Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Socket::Clock::now());
    pollfd one{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Socket Socket::Connected(Fd fd) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  BoundWaiting(fd.get());
  return Socket(std::move(fd));
}

absl::StatusOr<Socket> Socket::Connect(const HostPort& address) {
  BATON_ASSIGN_OR_RETURN(Socket socket,
                         FirstOf(address, 0, "connect", [](int fd, const addrinfo& one) {
                           return connect(fd, one.ai_addr, one.ai_addrlen) == 0;
                         }));
  return Connected(std::move(socket.fd_));
}

absl::StatusOr<Socket> Socket::Listen(const HostPort& address) {
  return FirstOf(address, AI_PASSIVE, "listen", [](int fd, const addrinfo& one) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return bind(fd, one.ai_addr, one.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0;
  });
}

int Socket::port() const {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  getsockname(fd(), reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

absl::StatusOr<Socket> Socket::Accept(Clock::time_point deadline) const {
  if (!WaitFor(fd(), POLLIN, deadline)) return absl::DeadlineExceededError("nobody connected");
  Fd accepted(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted.valid()) {
    return absl::UnavailableError(absl::StrCat("accept: ", std::strerror(errno)));
  }
  return Connected(std::move(accepted));
}

absl::Status Socket::Send(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      return absl::UnavailableError(errno == EAGAIN || errno == EWOULDBLOCK
                                        ? "takes nothing any more"
                                        : absl::StrCat("send: ", std::strerror(errno)));
    }
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

void Socket::SendIfRoom(std::span<const std::byte> bytes) const {
  const ssize_t sent = send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // A part would garble what follows. The rest is small, and there was room a moment ago.
  if (sent > 0) Send(bytes.subspan(static_cast<size_t>(sent))).IgnoreError();
}

absl::StatusOr<size_t> Socket::Receive(std::span<std::byte> into,
                                       Clock::time_point deadline) const {
  if (!WaitFor(fd(), POLLIN, deadline)) return absl::DeadlineExceededError("says nothing");
  const ssize_t received = recv(fd(), into.data(), into.size(), 0);
  if (received > 0) return static_cast<size_t>(received);
  return absl::UnavailableError(received == 0
                                    ? "closed the connection"
                                    : absl::StrCat("lost the connection: ", std::strerror(errno)));
}

bool Socket::Ended() const {
  std::byte one{};
  const ssize_t received = recv(fd(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return received == 0 || (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

void Socket::EndSending() const { shutdown(fd(), SHUT_WR); }

}  // namespace baton::engine
