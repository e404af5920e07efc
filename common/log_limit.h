#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/mutex.h"

namespace baton {

// Keeps what clients or peers can cause at will from filling the log:
//
//   if (const auto held_back = limit.Next()) spdlog::warn("... ({} more)", *held_back);
//
// Thread-safe.
class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // At most `lines` in each `span`.
  LogLimit(int lines, std::chrono::steady_clock::duration span) : lines_(lines), span_(span) {}

  // If a line may be written now: how many were held back since the one before.
  std::optional<int64_t> Next(Time now = std::chrono::steady_clock::now()) {
    MutexLock lock(mutex_);
    if (now >= end_) {
      end_ = now + span_;
      written_ = 0;
    }
    if (written_ == lines_) {
      ++held_back_;
      return std::nullopt;
    }
    ++written_;
    return std::exchange(held_back_, 0);
  }

 private:
  const int lines_;
  const std::chrono::steady_clock::duration span_;
  Mutex mutex_;
  Time end_ ABSL_GUARDED_BY(mutex_);  // of the present span
  int written_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t held_back_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton
