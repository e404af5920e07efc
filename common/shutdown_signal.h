#pragma once

#include <functional>
#include <thread>

namespace baton {

// SIGTERM and SIGINT as something that main waits for. Construct it before any thread is started:
// the signals are blocked in all threads that come after. SIGPIPE is ignored from then on: a server
// does not end because nobody reads its output any more.
class ShutdownSignal {
 public:
  ShutdownSignal();
  // Returns the signal's number. After the first, the default action is restored, so that a second
  // signal ends a process that drains for too long (but not the first process of a container, which
  // the kernel spares).
  int Wait();
};

// While it exists, a signal ends the process: for a start that takes minutes and that others see as
// a death at any moment. `before` is told the signal's number.
class EndAtShutdownSignal {
 public:
  EndAtShutdownSignal(const ShutdownSignal& blocked, std::function<void(int)> before);

 private:
  std::jthread thread_;
};

}  // namespace baton
