#include "engine/growth_policy.h"

#include <algorithm>
#include <numeric>

namespace baton::engine {

GrowthPlan PlanGrowth(std::span<const GrowthCandidate> candidates, int64_t free_pages) {
  GrowthPlan plan;
  plan.run.resize(candidates.size());
  std::iota(plan.run.begin(), plan.run.end(), size_t{0});
  std::sort(plan.run.begin(), plan.run.end(),
            [&](size_t a, size_t b) { return candidates[a].admitted < candidates[b].admitted; });
  int64_t needed = 0;
  for (const GrowthCandidate& candidate : candidates) needed += candidate.pages_needed;
  while (needed > free_pages && !plan.run.empty()) {
    const GrowthCandidate& youngest = candidates[plan.run.back()];
    needed -= youngest.pages_needed;
    free_pages += youngest.pages_held;
    plan.preempt.push_back(plan.run.back());
    plan.run.pop_back();
  }
  return plan;
}

}  // namespace baton::engine
