#pragma once

#include <csignal>
#include <initializer_list>
#include <utility>
#include <vector>

namespace baton::cli {

// While it lives the given signals are counted instead of ending the program, and interrupt what
// the program waits for in system calls (EINTR). One at a time.
class Interrupts {
 public:
  explicit Interrupts(std::initializer_list<int> signals);
  ~Interrupts();  // as it was before

  // Of any of the signals since construction or Reset. Thread-safe.
  static int Count();
  static bool Pending() { return Count() > 0; }
  static void Reset();

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace baton::cli
