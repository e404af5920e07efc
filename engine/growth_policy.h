#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

// [PD-6] Which decoding sequences run when pages are short, as a pure function.
//
// The oldest go on and the youngest give way, so that somebody always finishes and nobody waits for
// a page while holding others. A sequence that gives way frees all its pages and its slot; its
// tokens are kept, and it is computed again from them later. It keeps its admission number and is
// admitted before anything younger, or it would lose to every newcomer.
// Pages that a transfer may still write cannot be taken back. Rather than give way to a younger
// sequence that is pinned so, an older one skips steps until that one has landed, which has a
// deadline, and can give way itself.

struct GrowthCandidate {
  uint64_t admitted = 0;     // admission order; lower is older; distinct
  int64_t pages_held = 0;    // freed if it gives way
  int64_t pages_needed = 0;  // beyond those, for the next step
  bool pinned = false;       // cannot give way now, and needs nothing
};

// Indices into the candidates. Every candidate is in exactly one of the three.
struct GrowthPlan {
  std::vector<size_t> run;      // oldest first; the pinned ones among them
  std::vector<size_t> skip;     // keep what they hold and do not run; youngest first
  std::vector<size_t> preempt;  // youngest first, the order in which they are to be freed
};

// After freeing `preempt`, `free_pages` suffice for all of `run`. Preempts no more than that takes.
// While anybody skips, free pages are for those who skip: nobody else may be given any.
GrowthPlan PlanGrowth(std::span<const GrowthCandidate> candidates, int64_t free_pages);

}  // namespace baton::engine
