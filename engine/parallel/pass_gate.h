#pragma once

#include <functional>
#include <utility>

#include "common/base/check.h"
#include "engine/parallel/expert_group.h"

namespace baton::engine {

// How a model keeps step with its group: every pass that reaches a MoE layer goes through Enter.
// Without a group it lets everything pass. Engine thread only.
class PassGate {
 public:
  // `join` runs this rank's part of a step to which it brings no rows: its MoE layers.
  PassGate(ExpertGroup* group, std::function<void(const Step&)> join)
      : group_(group), join_(std::move(join)) {}

  // Returns the step in which the caller's pass of `rows` > 0 rows now runs, after those of others
  // that go first.
  Step Enter(PassKind kind, int64_t rows) {
    if (group_ == nullptr) return {.kind = kind, .rows = {rows}};
    for (;;) {
      const absl::StatusOr<Step> step = group_->Agree({.kind = kind, .rows = rows});
      if (!step.ok()) EndProcess(step.status());
      const int64_t mine = step->rows[static_cast<size_t>(group_->rank())];
      BATON_CHECK(mine == 0 || (mine == rows && step->kind == kind)) << mine << " of " << rows;
      if (mine > 0) return *step;
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
