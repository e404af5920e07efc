#pragma once

#include <chrono>

namespace baton {

// Monotonic time, injectable. Durations only: never compared across processes.
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;

  // The process's real clock.
  static const Clock& Real();
};

double Seconds(Clock::Duration duration);

}  // namespace baton
