#pragma once

#include <functional>
#include <utility>

#include "engine/parallel/expert_group.h"

namespace baton::engine {

// How a model keeps step with its group: every pass that reaches a MoE layer goes through Enter.
// Without a group it lets everything pass. Engine thread only.
class PassGate {
 public:
  // `join` runs this rank's part of a step to which it brings no rows: its MoE layers.
  PassGate(ExpertGroup* group, std::function<void(const Step&)> join)
      : group_(group), join_(std::move(join)) {}

  // Returns the step in which the caller's pass of wish.rows > 0 rows now runs, after those of
  // others that go first.
  Step Enter(const Wish& wish) {
    if (group_ == nullptr) {
      return {.kind = wish.kind,
              .rows = {wish.rows},
              .sequence_rows = wish.sequence_rows,
              .positions = wish.positions};
    }
    for (;;) {
      const absl::StatusOr<Step> step = group_->Agree(wish);
      if (!step.ok()) EndProcess(step.status());
      if (step->rows[static_cast<size_t>(group_->rank())] > 0) return *step;
      join_(*step);
    }
  }
  // Runs what others wanted while this rank rested.
  void Join() {
    if (group_ == nullptr) return;
    if (const std::optional<Step> step = group_->TakeCall()) join_(*step);
  }

 private:
  ExpertGroup* const group_;
  const std::function<void(const Step&)> join_;
};

}  // namespace baton::engine
