#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/gate.h"
#include "engine/engine.h"

// The engine thread. It alone touches the engine, the sequences and the role's scheduler; every
// other thread talks to it through Post.

namespace baton::engine {

// What a role (prefill, decode) does with the engine thread. All calls come from that thread.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // What the next step computes; empty: nothing to do, the thread sleeps until the next Post. Asked
  // after every batch of posted tasks and after every step.
  virtual std::vector<StepItem> PlanStep() = 0;
  virtual void OnStep(std::vector<StepOutput> outputs) = 0;
};

class EngineLoop {
 public:
  // Both outlive the loop. The thread starts at once, so the client must be ready for PlanStep.
  EngineLoop(Engine& engine, EngineClient& client);
  // Stop, then joins. Not from the engine thread.
  ~EngineLoop();

  // Runs `task` on the engine thread before the next step, in the order of posting. Thread-safe,
  // never blocks: the queue is bounded by the callers' own admission, a request posts O(1) tasks at
  // a time. Tasks posted after Stop are destroyed unrun, on the posting thread.
  void Post(std::function<void()> task);
  // Posts and waits until the task has run; not from the engine thread itself. False when the loop
  // was stopped before and the task will never run.
  bool Run(std::function<void()> task);
  // No new tasks and no new step: what was posted before runs, the step that runs finishes, then
  // the thread ends. Thread-safe, does not wait, may be repeated.
  void Stop();
  // The end of a client whose requests are inside `gate` until they hold nothing any more: closes
  // it, runs `end_all` on the engine thread, again and again for what was being submitted when the
  // gate closed, until all have left, then Stop. Not from the engine thread.
  void StopWhenEmpty(Gate& gate, const std::function<void()>& end_all);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
