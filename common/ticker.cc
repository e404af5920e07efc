#include "common/ticker.h"

#include <utility>

namespace baton {

Ticker::Ticker(std::chrono::nanoseconds period, std::function<void()> tick)
    : thread_([this, period, tick = std::move(tick)] {
        auto next = std::chrono::steady_clock::now() + period;
        while (true) {
          {
            MutexLock lock(mutex_);
            while (!stopping_) {
              const auto left = next - std::chrono::steady_clock::now();
              if (left <= std::chrono::nanoseconds::zero()) break;
              wake_.WaitFor(mutex_, left);
            }
            if (stopping_) return;
          }
          tick();
          next = std::chrono::steady_clock::now() + period;
        }
      }) {}

Ticker::~Ticker() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

}  // namespace baton
