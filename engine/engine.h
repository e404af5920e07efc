#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache/geometry.h"
#include "engine/model/forward.h"
#include "engine/sequence.h"

// The engine of a worker, prefill and decode alike: model, cache, and one continuous-batching step.
// It decides nothing: a scheduler says what a step computes. Engine thread only, unless said.

namespace baton::engine {

struct EngineOptions {
  std::string model_dir;
  CacheOptions cache;
  ForwardOptions forward;
  int draft_tokens = 1;  // MTP tokens drafted a decode step: 0 to rollback_rows - 1, 0 without MTP
};

// What a step does for one sequence: computes the next `tokens` known positions (a prompt chunk), or
// with tokens == 0 decodes: verifies its drafts, samples, drafts again. A chunk that reaches the end
// of tokens() samples the next one.
struct StepItem {
  Sequence* sequence = nullptr;
  int32_t tokens = 0;
};

struct StepOutput {
  Sequence* sequence = nullptr;
  // Tokens appended to the sequence in this step: none for an inner prompt chunk, one for the last
  // chunk, 1 to draft_tokens + 1 for a decode step. Never more than max_tokens allows.
  std::vector<int32_t> new_tokens;
  enum class Finish : uint8_t { kNo, kStop, kLength } finish = Finish::kNo;
};

// Pages and slots by owner, for the invariant total = free + used; thread-safe snapshot.
struct CacheUsage {
  int64_t pages_total = 0;
  int64_t pages_free = 0;
  int64_t pages_sequences = 0;  // recounted from the live sequences, not derived from the others
  int slots_total = 0;
  int slots_free = 0;
};

class Engine {
 public:
  // Loads model and weights; every error names the file and the tensor or key.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  ~Engine();

  // Reserves a state slot and pages for `reserve_tokens` (>= prompt) at once, or fails with
  // RESOURCE_EXHAUSTED and holds nothing. A prompt with an id outside the vocabulary, an empty
  // prompt or one beyond the context is INVALID_ARGUMENT.
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(std::vector<int32_t> prompt,
                                                        const SamplingParams& sampling,
                                                        int64_t reserve_tokens);
  // Reserves pages up to `tokens`; RESOURCE_EXHAUSTED leaves the sequence as it was.
  absl::Status Grow(Sequence& sequence, int64_t tokens);

  // The state after a hand-off of the whole prompt: every live record of prompt_tokens() has been
  // scattered into records(), and the prefill worker sampled `first_token`.
  void AdoptHandoff(Sequence& sequence, int32_t first_token);
  // Whether the sequence is finished by what it holds already (a first token that stops it).
  StepOutput::Finish FinishOf(const Sequence& sequence) const;

  // One forward pass over all items. Every item must have pages for what it computes (decode:
  // computed() + draft_tokens + 1 positions, or the end of its max_tokens if that is nearer).
  std::vector<StepOutput> Step(std::span<const StepItem> items);

  CacheUsage usage() const;  // thread-safe
  const ModelConfig& model_config() const;
  const CacheGeometry& geometry() const;
  const EngineOptions& options() const;
  // Longest prompt + output a sequence can have here: context of the model or all pages.
  int64_t max_sequence_tokens() const;

  // Name/value pairs that must be equal between two workers for their caches to be exchanged:
  // model hash, cache formats, numerics, index_topk, MTP, ... in a fixed order.
  std::vector<std::pair<std::string, std::string>> semantics() const;

 private:
  friend class Sequence;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
