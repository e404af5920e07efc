#include "engine/engine_loop.h"

#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/mutex.h"

namespace baton::engine {

struct EngineLoop::Impl {
  Impl(Engine& engine, EngineClient& client) : engine(engine), client(client) {}

  Engine& engine;
  EngineClient& client;

  Mutex mutex;
  CondVar wake;
  std::vector<std::function<void()>> tasks ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;

  std::thread thread;  // last: it uses everything above

  void Loop();
  // False when the loop is stopping; the task is left to the caller.
  bool TryPost(std::function<void()>& task);
  // Waits for tasks unless there is a step to compute; false when the thread is to end.
  bool TakeTasks(bool wait, std::vector<std::function<void()>>* taken);
};

bool EngineLoop::Impl::TryPost(std::function<void()>& task) {
  {
    MutexLock lock(mutex);
    if (stopping) return false;
    tasks.push_back(std::move(task));
  }
  wake.NotifyOne();
  return true;
}

bool EngineLoop::Impl::TakeTasks(bool wait, std::vector<std::function<void()>>* taken) {
  MutexLock lock(mutex);
  while (wait && tasks.empty() && !stopping) wake.Wait(mutex);
  taken->swap(tasks);
  return !(taken->empty() && stopping);
}

void EngineLoop::Impl::Loop() {
  bool idle = false;
  std::vector<std::function<void()>> taken;
  while (TakeTasks(idle, &taken)) {
    for (std::function<void()>& task : taken) {
      task();
      task = nullptr;  // what it captured goes before the next one runs
    }
    taken.clear();
    {
      MutexLock lock(mutex);
      if (stopping) continue;
    }
    const std::vector<StepItem> items = client.PlanStep();
    idle = items.empty();
    if (idle) {
      engine.Rest();
    } else {
      client.OnStep(engine.Step(items));
    }
  }
}

EngineLoop::EngineLoop(Engine& engine, EngineClient& client)
    : impl_(std::make_unique<Impl>(engine, client)) {
  engine.OnCall([this, &engine] { Post([&engine] { engine.JoinPass(); }); });
  impl_->thread = std::thread([impl = impl_.get()] { impl->Loop(); });
}

EngineLoop::~EngineLoop() {
  Stop();
  BATON_CHECK(std::this_thread::get_id() != impl_->thread.get_id())
      << "the engine thread cannot end itself";
  impl_->thread.join();
  impl_->engine.OnCall({});
}

void EngineLoop::Post(std::function<void()> task) { impl_->TryPost(task); }

bool EngineLoop::Run(std::function<void()> task) {
  BATON_CHECK(std::this_thread::get_id() != impl_->thread.get_id())
      << "waiting on the engine thread for itself";
  struct Completion {
    Mutex mutex;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mutex) = false;
  } completion;
  std::function<void()> wrapped = [&completion, &task] {
    task();
    MutexLock lock(completion.mutex);
    completion.done = true;
    completion.changed.NotifyAll();  // under the lock: the waiter destroys `completion` after it
  };
  if (!impl_->TryPost(wrapped)) return false;
  MutexLock lock(completion.mutex);
  while (!completion.done) completion.changed.Wait(completion.mutex);
  return true;
}

void EngineLoop::Stop() {
  {
    MutexLock lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.NotifyAll();
}

void EngineLoop::StopWhenEmpty(Gate& gate, const std::function<void()>& end_all) {
  gate.Close();
  do {
    Post(end_all);
  } while (!gate.WaitEmpty(std::chrono::seconds(1)));
  Run([] {});  // the task in which the last one left has ended too
  Stop();
}

}  // namespace baton::engine
