#pragma once

namespace baton {

// SIGTERM and SIGINT as something that main waits for. Construct it before any thread is started:
// the signals are blocked in all threads that come after.
class ShutdownSignal {
 public:
  ShutdownSignal();
  // Returns the signal's number. After the first, the default action is restored, so that a second
  // signal ends a process that drains for too long.
  int Wait();
};

}  // namespace baton
