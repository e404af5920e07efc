#include "kvtransfer/executor.h"

#include <utility>

namespace baton::kvtransfer {

TransferThread::TransferThread() : thread_([this] { Loop(); }) {}

TransferThread::~TransferThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void TransferThread::Run(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.NotifyOne();
}

void TransferThread::Loop() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !stopping_) wake_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace baton::kvtransfer
