#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "common/mutex.h"

namespace baton {

// Drain as an object. Thread-safe. Work enters through TryEnter; after Close nothing enters, and
// WaitEmpty returns when everything inside has left.
class Gate {
 public:
  // Leaves the gate when destroyed. Move-only; empty when moved from or refused.
  class Pass {
   public:
    Pass() = default;
    explicit Pass(Gate* gate) : gate_(gate) {}
    Pass(Pass&& other) noexcept : gate_(other.gate_) { other.gate_ = nullptr; }
    Pass& operator=(Pass&& other) noexcept {
      if (this != &other) {
        Leave();
        gate_ = other.gate_;
        other.gate_ = nullptr;
      }
      return *this;
    }
    ~Pass() { Leave(); }
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    void Leave() {
      if (gate_ != nullptr) gate_->Leave();
      gate_ = nullptr;
    }
    Gate* gate_ = nullptr;
  };

  // An empty pass when the gate is closed.
  Pass TryEnter() {
    MutexLock lock(mutex_);
    if (closed_) return Pass();
    ++inside_;
    return Pass(this);
  }

  // `count` passes, or none: when the gate is closed, or more than `limit` would be inside.
  std::vector<Pass> TryEnter(size_t count, size_t limit) {
    std::vector<Pass> passes;
    MutexLock lock(mutex_);
    if (closed_ || static_cast<size_t>(inside_) + count > limit) return passes;
    inside_ += static_cast<int>(count);
    for (size_t i = 0; i < count; ++i) passes.emplace_back(this);
    return passes;
  }

  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    if (inside_ == 0) empty_.NotifyAll();
  }

  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

  int inside() const {
    MutexLock lock(mutex_);
    return inside_;
  }

  // Waits until the closed gate is empty; false when `timeout` passed first.
  bool WaitEmpty(std::chrono::nanoseconds timeout) {
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!closed_ || inside_ > 0) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds::zero()) return false;
      empty_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  void Leave() {
    MutexLock lock(mutex_);
    if (--inside_ == 0) empty_.NotifyAll();
  }

  mutable Mutex mutex_;
  CondVar empty_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
