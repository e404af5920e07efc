#pragma once

#include <cstdint>
#include <span>

#include "common/clock.h"
#include "common/worker_metrics.h"
#include "engine/engine.h"

namespace baton::engine {

// What steps cost and yield, for both roles. Engine thread only.
class StepMetrics {
 public:
  // Both outlive this object.
  StepMetrics(WorkerMetrics& metrics, const Clock& clock) : metrics_(metrics), clock_(clock) {}

  void OnBegun(const Engine& engine, const Sequence& sequence, PrefixUse use);
  void OnPlanned(const Engine& engine, std::span<const StepItem> items);  // just before the step
  void OnDone(std::span<const StepOutput> outputs);

 private:
  WorkerMetrics& metrics_;
  const Clock& clock_;
  Clock::TimePoint started_;
  int64_t evicted_ = 0;  // prefix pages, as counted so far
};

}  // namespace baton::engine
