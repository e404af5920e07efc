#include "engine/growth_policy.h"

#include <algorithm>
#include <numeric>

namespace baton::engine {

GrowthPlan PlanGrowth(std::span<const GrowthCandidate> candidates, int64_t free_pages) {
  std::vector<size_t> youngest_first(candidates.size());
  std::iota(youngest_first.begin(), youngest_first.end(), size_t{0});
  std::sort(youngest_first.begin(), youngest_first.end(),
            [&](size_t a, size_t b) { return candidates[a].admitted > candidates[b].admitted; });
  int64_t needed = 0;
  for (const GrowthCandidate& candidate : candidates) needed += candidate.pages_needed;

  GrowthPlan plan;
  bool younger_is_pinned = false;
  for (const size_t i : youngest_first) {
    const GrowthCandidate& candidate = candidates[i];
    if (needed <= free_pages || candidate.pinned ||
        (younger_is_pinned && candidate.pages_needed == 0)) {
      plan.run.push_back(i);
      younger_is_pinned |= candidate.pinned;
      continue;
    }
    needed -= candidate.pages_needed;
    if (younger_is_pinned) {
      plan.skip.push_back(i);
    } else {
      free_pages += candidate.pages_held;
      plan.preempt.push_back(i);
    }
  }
  std::reverse(plan.run.begin(), plan.run.end());
  return plan;
}

}  // namespace baton::engine
