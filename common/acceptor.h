#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/fd.h"

namespace baton {

// How long nothing is accepted after that has failed: who is out of descriptors stays so until
// somebody closes something.
inline constexpr std::chrono::milliseconds kAcceptPause{50};

// Logs why not, one line in ten seconds whoever listens.
void WarnNotAccepted(std::string_view listener, std::string_view why);

// Accepts on a thread that polls. A listener stays readable while nothing can be taken: then it is
// not watched for a moment, while what is open goes on, so that the thread does not spin. One
// thread.
class Acceptor {
 public:
  // `name` is for the log. `listener` is non-blocking, or invalid: then nobody ever comes.
  Acceptor(std::string name, Fd listener)
      : name_(std::move(name)), listener_(std::move(listener)) {}

  const Fd& listener() const { return listener_; }
  // For poll, which passes over a negative one; then it must look again after kAcceptPause.
  int watched() const { return Clock::Real().Now() < paused_until_ ? -1 : listener_.get(); }
  // When it is readable: a non-blocking socket, or an invalid one when nothing can be taken now.
  Fd Accept();

 private:
  const std::string name_;
  const Fd listener_;
  Clock::TimePoint paused_until_{};
};

}  // namespace baton
