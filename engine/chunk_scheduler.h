#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace baton::engine {

// How a step's token budget is shared, as a pure function: used by prefill workers, and by decode
// workers for local prefill between decode steps.

struct PrefillWork {
  int64_t remaining_tokens = 0;  // prompt tokens not yet computed, > 0
};

// All > 0.
struct ChunkLimits {
  int32_t step_tokens = 4096;   // prompt tokens a step computes at most, over all sequences
  int32_t chunk_tokens = 1024;  // of one sequence at most
  int32_t max_sequences = 8;    // with a chunk in one step
};

// Tokens to compute for each entry of `queue` (oldest first), 0 for those left out. Oldest first,
// but a prompt longer than a chunk leaves the rest of the step to those behind it, so that a short
// prompt is not stuck behind a long one. A non-empty queue always gets something.
std::vector<int32_t> ScheduleChunks(std::span<const PrefillWork> queue, const ChunkLimits& limits);
// The same for sequences (oldest first) whose prompts are not computed yet: their part of a step.
std::vector<StepItem> ScheduleChunks(std::span<Sequence* const> queue, const ChunkLimits& limits);

}  // namespace baton::engine
