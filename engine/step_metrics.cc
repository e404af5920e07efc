#include "engine/step_metrics.h"

namespace baton::engine {

// Tokens count as cached where they were not computed. What was not received shows in the bytes.
void StepMetrics::OnBegun(const Engine& engine, const Sequence& sequence, PrefixUse use) {
  if (!engine.has_prefix_cache()) return;
  const auto cached = static_cast<double>(sequence.cached_tokens());
  (cached > 0 ? metrics_.prefix_cache_hits : metrics_.prefix_cache_misses).Increment();
  if (use == PrefixUse::kReceive) return;
  metrics_.prompt_tokens.Increment(cached);
  metrics_.prefix_cached_tokens.Increment(cached);
}

void StepMetrics::OnPlanned(const Engine& engine, std::span<const StepItem> items) {
  const int64_t evicted = engine.prefix_pages_evicted();
  metrics_.prefix_cache_evictions.Increment(static_cast<double>(evicted - evicted_));
  evicted_ = evicted;
  if (items.empty()) return;
  int64_t positions = 0;
  int64_t prompt = 0;
  for (const StepItem& item : items) {
    prompt += item.tokens;
    positions += item.tokens > 0 ? item.tokens : 1;
  }
  metrics_.prompt_tokens.Increment(static_cast<double>(prompt));
  metrics_.engine_batch_tokens.Observe(static_cast<double>(positions));
  metrics_.engine_batch_sequences.Observe(static_cast<double>(items.size()));
  started_ = clock_.Now();
}

void StepMetrics::OnDone(std::span<const StepOutput> outputs) {
  metrics_.engine_step_duration.Observe(Seconds(clock_.Now() - started_));
  for (const StepOutput& output : outputs) {
    metrics_.generation_tokens.Increment(static_cast<double>(output.new_tokens.size()));
    metrics_.spec_decode_drafted_tokens.Increment(output.drafted);
    metrics_.spec_decode_accepted_tokens.Increment(output.accepted);
  }
}

}  // namespace baton::engine
