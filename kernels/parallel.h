#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

// The threads that CPU ops run on.

namespace baton::kernels {

// A fixed set of worker threads; the calling thread is one of them. Work is cut into blocks by its
// size alone, never by the number of threads, so what a block computes does not depend on the
// machine. Only one thread at a time may call For(); blocks must not call it themselves.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: one per core
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(begin, end) for consecutive ranges of at most `grain` that cover [0, count), in any
  // order and on any thread; returns when all are done. A single range runs on the caller.
  template <typename Body>
  void For(int64_t count, int64_t grain, Body&& body) {
    using Callee = std::remove_reference_t<Body>;
    Run(
        count, grain,
        [](void* callee, int64_t begin, int64_t end) {
          (*static_cast<Callee*>(callee))(begin, end);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Trampoline = void (*)(void* callee, int64_t begin, int64_t end);
  void Run(int64_t count, int64_t grain, Trampoline call, void* callee);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton::kernels
