#include "common/metrics_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/acceptor.h"
#include "common/base/check.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "common/wakeup.h"

namespace baton {
namespace {

constexpr std::chrono::seconds kConnectionTime{5};
constexpr size_t kMaxConnections = 64;  // the oldest of more is closed
constexpr size_t kMaxRequestBytes = 8 << 10;
constexpr absl::string_view kEndOfHead = "\r\n\r\n";

std::string Reply(absl::string_view status, absl::string_view body, bool with_body = true) {
  return absl::StrCat("HTTP/1.1 ", status,
                      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
                      "\r\nContent-Length: ",
                      body.size(), "\r\nConnection: close\r\n\r\n", with_body ? body : "");
}

// To the head of a request, which is complete.
std::string Answer(absl::string_view head, const std::function<std::string()>& text) {
  const std::vector<absl::string_view> line =
      absl::StrSplit(head.substr(0, head.find("\r\n")), ' ');
  if (line.size() != 3 || !absl::StartsWith(line[2], "HTTP/")) {
    return Reply("400 Bad Request", "malformed HTTP request\n");
  }
  const bool is_head = line[0] == "HEAD";
  if (line[0] != "GET" && !is_head) return Reply("405 Method Not Allowed", "GET only\n");
  if (line[1].substr(0, line[1].find('?')) != "/metrics") {
    return Reply("404 Not Found", "the metrics are at /metrics\n", !is_head);
  }
  return Reply("200 OK", text(), !is_head);
}

// One request and its answer, without ever waiting.
class Connection {
 public:
  explicit Connection(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  int16_t awaits() const { return Unsent().empty() ? POLLIN : POLLOUT; }
  Clock::TimePoint deadline() const { return deadline_; }

  // Takes and gives what it can; false when the connection has ended.
  bool Proceed(const std::function<std::string()>& text) { return Receive(text) && Send(); }

 private:
  absl::string_view Unsent() const { return absl::string_view(reply_).substr(sent_); }

  bool Receive(const std::function<std::string()>& text) {
    char block[4096];
    const ssize_t size = recv(fd(), block, sizeof(block), 0);
    if (size == 0) return !Unsent().empty();  // asks no more, may still be listening
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    // What comes behind the head is dropped, not left: closing would reset the connection before
    // the client has read its answer.
    if (!reply_.empty()) return true;
    head_.append(block, static_cast<size_t>(size));
    if (absl::StrContains(head_, kEndOfHead)) {
      reply_ = Answer(head_, text);
    } else if (head_.size() > kMaxRequestBytes) {
      reply_ = Reply("431 Request Header Fields Too Large", "the request is too large\n");
    }
    return true;
  }

  bool Send() {
    if (Unsent().empty()) return true;
    const ssize_t size = send(fd(), Unsent().data(), Unsent().size(), MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(size);
    if (Unsent().empty()) shutdown(fd(), SHUT_WR);
    return true;
  }

  Fd socket_;
  const Clock::TimePoint deadline_ = Clock::Real().Now() + kConnectionTime;
  std::string head_;
  std::string reply_;  // empty: not asked yet
  size_t sent_ = 0;    // bytes of reply_
};

absl::StatusOr<Fd> Listen(const std::string& listen) {
  const auto failed = [&](const char* why) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on \"", listen, "\": ", why));
  };
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(listen));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  if (const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found)) {
    return failed(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Fd listener(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!listener.valid() ||
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return failed(strerror(errno));
  }
  return listener;
}

int PortOf(const Fd& listener) {
  sockaddr_in6 address{};  // the port stands at the same place for IPv4
  socklen_t size = sizeof(address);
  BATON_CHECK(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin6_port);
}

}  // namespace

struct MetricsServer::Impl {
  Impl(Fd listening, Wakeup wakeup, std::function<std::string()> what)
      : door("metrics", std::move(listening)),
        stop(std::move(wakeup)),
        text(std::move(what)),
        thread([this] { Run(); }) {}

  void Run();
  void WaitForEvents();
  void Accept();

  Acceptor door;  // of the thread, but for the port
  const Wakeup stop;
  const std::function<std::string()> text;
  std::list<Connection> connections;  // the oldest first; of the thread
  std::vector<pollfd> events;         // stop, listener, then `connections` in order
  std::thread thread;
};

void MetricsServer::Impl::WaitForEvents() {
  events = {{stop.watched(), POLLIN, 0}, {door.watched(), POLLIN, 0}};
  for (const Connection& connection : connections) {
    events.push_back({connection.fd(), connection.awaits(), 0});
  }
  int timeout_ms = -1;
  if (!connections.empty()) {
    const auto left = connections.front().deadline() - Clock::Real().Now();
    timeout_ms = static_cast<int>(
        std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count()));
  }
  if (events[1].fd < 0) {
    constexpr auto kPauseMs = static_cast<int>(kAcceptPause.count());
    timeout_ms = timeout_ms < 0 ? kPauseMs : std::min(timeout_ms, kPauseMs);
  }
  if (poll(events.data(), events.size(), timeout_ms) < 0) {
    for (pollfd& event : events) event.revents = 0;  // interrupted
  }
}

void MetricsServer::Impl::Accept() {
  Fd socket = door.Accept();
  if (!socket.valid()) return;
  if (connections.size() == kMaxConnections) connections.pop_front();
  connections.emplace_back(std::move(socket));
}

void MetricsServer::Impl::Run() {
  while (true) {
    WaitForEvents();
    if (events[0].revents != 0) return;
    auto event = events.begin() + 2;
    const Clock::TimePoint now = Clock::Real().Now();
    std::erase_if(connections, [&](Connection& connection) {
      const bool ready = (event++)->revents != 0;
      return connection.deadline() <= now || (ready && !connection.Proceed(text));
    });
    if (events[1].revents != 0) Accept();
  }
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, std::function<std::string()> text) {
  BATON_ASSIGN_OR_RETURN(Fd listener, Listen(listen));
  BATON_ASSIGN_OR_RETURN(Wakeup stop, Wakeup::Create());
  auto impl = std::make_unique<Impl>(std::move(listener), std::move(stop), std::move(text));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() {
  impl_->stop.Wake();
  impl_->thread.join();
}

int MetricsServer::port() const { return PortOf(impl_->door.listener()); }

}  // namespace baton
