#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace baton::kernels {

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  // A thread joins the current job only while it is open, and the caller waits only for those that
  // joined: on a busy machine a thread may wake up long after the others have done all the work.
  bool open = false;
  int working = 0;  // threads inside the job
  bool stopping = false;

  int64_t count = 0;
  int64_t grain = 1;
  Trampoline call = nullptr;
  void* callee = nullptr;
  std::atomic<int64_t> next{0};

  std::vector<std::thread> threads;

  void TakeBlocks() {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      call(callee, begin, std::min(begin + grain, count));
    }
  }

  void Work() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || open; });
      if (stopping) return;
      ++working;
      lock.unlock();
      TakeBlocks();
      lock.lock();
      open = false;  // nothing is left to take
      if (--working == 0) idle.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 1; i < threads; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->Work(); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::Run(int64_t count, int64_t grain, Trampoline call, void* callee) {
  if (count <= 0) return;
  State& state = *state_;
  if (count <= grain || state.threads.empty()) {
    for (int64_t begin = 0; begin < count; begin += grain) {
      call(callee, begin, std::min(begin + grain, count));
    }
    return;
  }
  {
    const std::lock_guard lock(state.mutex);
    state.count = count;
    state.grain = grain;
    state.call = call;
    state.callee = callee;
    state.next.store(0, std::memory_order_relaxed);
    state.open = true;
  }
  state.wake.notify_all();
  state.TakeBlocks();
  std::unique_lock lock(state.mutex);
  state.open = false;
  state.idle.wait(lock, [&] { return state.working == 0; });
}

}  // namespace baton::kernels
