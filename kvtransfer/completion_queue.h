#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// Completions on their way to Poll, for transports that learn of them on other threads.
// Thread-safe.
class CompletionQueue {
 public:
  // Null: nobody is woken any more once this has returned.
  void SetWakeup(std::function<void()> wakeup) {
    MutexLock lock(mutex_);
    wakeup_ = std::move(wakeup);
  }

  void Push(Completion completion) {
    MutexLock lock(mutex_);
    completions_.push_back(std::move(completion));
    if (wakeup_ != nullptr) wakeup_();  // under the lock: see SetWakeup
  }

  std::vector<Completion> Take() {
    MutexLock lock(mutex_);
    return std::exchange(completions_, {});
  }

 private:
  Mutex mutex_;
  std::function<void()> wakeup_ ABSL_GUARDED_BY(mutex_);
  std::vector<Completion> completions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::kvtransfer
