#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"

// The engine thread. It alone touches the engine, the sequences and the role's scheduler; every
// other thread talks to it through Post.

namespace baton::engine {

// What a role (prefill, decode) does with the engine thread. All calls come from that thread.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // What the next step computes; empty: nothing to do, the thread sleeps until the next Post.
  virtual std::vector<StepItem> PlanStep() = 0;
  virtual void OnStep(std::vector<StepOutput> outputs) = 0;
};

class EngineLoop {
 public:
  EngineLoop(Engine& engine, EngineClient& client);
  // Runs what is posted, finishes the step that runs, then joins.
  ~EngineLoop();

  // Runs `task` on the engine thread before the next step. Thread-safe, never blocks: the queue is
  // bounded by the callers' own admission, a request posts O(1) tasks at a time. Tasks posted after
  // Stop are destroyed unrun.
  void Post(std::function<void()> task);
  // Posts and waits for the result; not from the engine thread itself.
  void Run(std::function<void()> task);
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
