#include "engine/chunk_scheduler.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::engine {

std::vector<int32_t> ScheduleChunks(std::span<const PrefillWork> queue, const ChunkLimits& limits) {
  BATON_CHECK(limits.step_tokens > 0 && limits.chunk_tokens > 0 && limits.max_sequences > 0)
      << limits.step_tokens << ", " << limits.chunk_tokens << ", " << limits.max_sequences;
  std::vector<int32_t> chunks(queue.size(), 0);
  int32_t left = limits.step_tokens;
  const size_t served = std::min(queue.size(), static_cast<size_t>(limits.max_sequences));
  for (size_t i = 0; i < served && left > 0; ++i) {
    BATON_CHECK(queue[i].remaining_tokens > 0) << "entry " << i << " has nothing to compute";
    const int32_t chunk = std::min(limits.chunk_tokens, left);
    chunks[i] = static_cast<int32_t>(std::min<int64_t>(queue[i].remaining_tokens, chunk));
    left -= chunks[i];
  }
  return chunks;
}

std::vector<StepItem> ScheduleChunks(std::span<Sequence* const> queue, const ChunkLimits& limits) {
  std::vector<PrefillWork> work;
  for (const Sequence* sequence : queue) {
    work.push_back({sequence->prompt_tokens() - sequence->computed()});
  }
  const std::vector<int32_t> chunks = ScheduleChunks(work, limits);
  std::vector<StepItem> items;
  for (size_t i = 0; i < queue.size(); ++i) {
    if (chunks[i] > 0) items.push_back({queue[i], chunks[i]});
  }
  return items;
}

}  // namespace baton::engine
