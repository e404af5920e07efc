#include "common/acceptor.h"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "common/log_limit.h"
#include "spdlog/spdlog.h"

namespace baton {

void WarnNotAccepted(std::string_view listener, std::string_view why) {
  static LogLimit limit(1, std::chrono::seconds(10));
  if (limit.Next()) spdlog::warn("{}: a connection waits: accept: {}", listener, why);
}

Fd Acceptor::Accept() {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int error = errno;
  // Nobody is there any more, or a signal came: no reason to make others wait.
  if (socket.valid() || error == EAGAIN || error == ECONNABORTED || error == EINTR) return socket;
  paused_until_ = Clock::Real().Now() + kAcceptPause;
  WarnNotAccepted(name_, std::strerror(error));
  return socket;
}

}  // namespace baton
