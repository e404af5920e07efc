#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "common/mutex.h"

namespace baton::kvtransfer {

// Where work that must not run on the caller's thread goes. Thread-safe.
class Executor {
 public:
  virtual ~Executor() = default;
  // Never blocks. Tasks of one caller run in the order in which they came, one after another.
  virtual void Run(std::function<void()> task) = 0;
};

// One thread, first in, first out. The destructor runs what is queued, then joins; it must not run
// on the thread itself. The queue is unbounded: users bound what they hand in.
class TransferThread final : public Executor {
 public:
  TransferThread();
  ~TransferThread() override;
  TransferThread(const TransferThread&) = delete;
  TransferThread& operator=(const TransferThread&) = delete;

  void Run(std::function<void()> task) override;

 private:
  void Loop();

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::kvtransfer
