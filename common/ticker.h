#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "common/mutex.h"

namespace baton {

// Calls a function every `period` on a thread of its own, until destroyed; the destructor waits for
// a call that runs. For deadlines that nothing else would wake up for.
class Ticker {
 public:
  Ticker(std::chrono::nanoseconds period, std::function<void()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton
