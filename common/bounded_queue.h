#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/mutex.h"

namespace baton {

// Multi-producer, multi-consumer FIFO with a hard capacity. Thread-safe. A full queue refuses at
// once, so that a producer can push back on *its* caller instead of waiting unseen. Wakes waiters
// under its lock: whoever popped the last expected item may destroy the queue.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { BATON_CHECK(capacity > 0); }

  // False, with `item` untouched, when full or closed.
  bool TryPush(T&& item) {
    MutexLock lock(mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    not_empty_.NotifyOne();
    return true;
  }

  // Waits for an item; nullopt once the queue is closed *and* empty.
  std::optional<T> Pop() {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) not_empty_.Wait(mutex_);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Pushes fail from now on; what is queued can still be popped.
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    not_empty_.NotifyAll();
  }

 private:
  const size_t capacity_;
  Mutex mutex_;
  CondVar not_empty_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
