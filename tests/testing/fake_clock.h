#pragma once

#include <atomic>

#include "common/clock.h"

namespace baton::testing {

// A clock that stands still until it is told to move. Thread-safe.
class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(nanoseconds_.load())); }
  void Advance(Duration by) { nanoseconds_ += by.count(); }

 private:
  // Starts away from zero, so that subtracting a timeout cannot wrap.
  std::atomic<int64_t> nanoseconds_{int64_t{1} << 50};
};

}  // namespace baton::testing
