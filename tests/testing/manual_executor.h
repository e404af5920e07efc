#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "common/base/check.h"
#include "kvtransfer/executor.h"

namespace baton::testing {

// Tasks wait until the test runs them, in the order it likes. Single-threaded.
class ManualExecutor final : public kvtransfer::Executor {
 public:
  void Run(std::function<void()> task) override { tasks_.push_back(std::move(task)); }

  size_t size() const { return tasks_.size(); }

  void RunAt(size_t index) {
    BATON_CHECK(index < tasks_.size());
    const std::function<void()> task = std::move(tasks_[index]);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
    task();
  }

  // With what they add meanwhile.
  void RunAll() {
    while (!tasks_.empty()) RunAt(0);
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

}  // namespace baton::testing
