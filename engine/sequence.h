#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/cache_layout.h"
#include "engine/sampler/sampling_params.h"
#include "engine/sampler/sequence_adjustments.h"

// One sequence being computed on this worker. Engine thread only, except records(), whose Gather
// and Scatter follow the rules of common/cache_layout.h.

namespace baton::engine {

class Engine;

class Sequence {
 public:
  // Gives pages and slot back to the engine, which must outlive it. Whoever still has a peer or a
  // transfer touching them must not destroy the sequence: it holds it in quarantine until the
  // transfer has ended.
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Prompt, then everything sampled (or given by a hand-off) so far.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  // Positions [0, computed) have their cache rows. Decode keeps computed == tokens().size() - 1.
  int64_t computed() const { return computed_; }
  const SamplingParams& sampling() const { return sampling_; }
  // Positions whose entries were found in the prefix cache when the sequence began.
  int64_t cached_tokens() const { return cached_tokens_; }
  // Of what the state was restored when it began, at most cached_tokens(); 0: of nothing.
  int64_t state_tokens() const { return state_tokens_; }
  // Its page table. Full pages may be other sequences' too; they are never written again.
  std::span<const int32_t> page_ids() const;
  // Tokens that pages are reserved for, whole pages; computing past it needs Engine::Grow first.
  int64_t reserved_tokens() const;

  // The hand-off's view of the cache. Valid as long as the sequence lives.
  SequenceRecords& records();

 private:
  friend class Engine;
  struct State;  // its place in the cache
  Sequence(std::vector<int32_t> prompt, SamplingParams sampling, std::unique_ptr<State> state);

  std::vector<int32_t> tokens_;
  const int64_t prompt_tokens_;
  int64_t computed_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t state_tokens_ = 0;
  const SamplingParams sampling_;
  std::optional<SequenceAdjustments> adjustments_;  // if sampling_ asks for any
  const std::unique_ptr<State> state_;
};

}  // namespace baton::engine
