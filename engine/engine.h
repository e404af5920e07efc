#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/error_list.h"
#include "engine/cache/geometry.h"
#include "engine/cache/ledger.h"
#include "engine/model/forward.h"
#include "engine/sequence.h"
#include "engine/verify.h"

// The engine of a worker, prefill and decode alike: model, cache, and one continuous-batching step.
// It decides nothing: a scheduler says what a step computes. Engine thread only, unless said.

namespace baton::engine {

// One of several ranks that share the model's experts: parallel/README.md.
struct ParallelOptions {
  int size = 1;  // 1: alone
  int rank = 0;
  std::string address{};  // host:port at which rank 0 listens for the others
  // What ends the group: a rank that others wait for so long, in a step and before the first.
  std::chrono::nanoseconds stall = std::chrono::seconds(60);
  std::chrono::nanoseconds start = std::chrono::minutes(30);
};

struct EngineOptions {
  std::string model_dir;
  bool dummy_weights = false;  // random ones in the shape of the config.json: Checkpoint::OpenDummy
  int num_layers = 0;          // of the trunk, for dummy weights; 0: all
  std::string device = "cpu";  // one of BackendNames()
  CacheOptions cache;          // pages 0: as many as memory_fraction leaves room for
  double memory_fraction = 0.9;  // of a device's memory, for weights, intermediates and cache
  ForwardOptions forward;
  ParallelOptions parallel;
  int draft_tokens = 1;  // MTP tokens drafted a decode step: 0 to rollback_rows - 1, 0 without MTP
  PrefixLimits prefix;   // of the prefix cache; off by default
  int prefix_percent = 100;  // of all pages: what prefix.pages is at most
};

// What a step does for one sequence: computes the next `tokens` positions of the prompt (a chunk),
// or with tokens == 0, once the prompt is computed, decodes: drafts, verifies the drafts, samples.
// A chunk that reaches the end of the prompt samples the first token.
struct StepItem {
  Sequence* sequence = nullptr;
  int32_t tokens = 0;
};

struct StepOutput {
  using Finish = engine::Finish;

  Sequence* sequence = nullptr;
  // Tokens appended to the sequence in this step: none for an inner prompt chunk, one for the last
  // chunk, 1 to draft_tokens + 1 for a decode step. Never more than max_tokens allows.
  std::vector<int32_t> new_tokens;
  // One for each of them if the sequence's sampling asks (top_logprobs), else none.
  std::vector<TokenLogprobs> logprobs = {};
  Finish finish = Finish::kNo;
  int32_t drafted = 0;   // tokens the MTP block proposed in this step ...
  int32_t accepted = 0;  // ... and how many of them are among new_tokens
};

class Engine {
 public:
  // Loads model and weights; every error names the file and the tensor or key, or the option. A
  // rank returns when all have loaded theirs.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Adds what it would refuse without a device and weights: files, their headers, and options that
  // do not fit them or each other.
  static void Check(const EngineOptions& options, ErrorList& errors);
  ~Engine();

  // What NewSequence refuses whatever is free. Thread-safe.
  absl::Status CheckRequest(const std::vector<int32_t>& prompt,
                            const SamplingParams& sampling) const;
  // Reserves a state slot and pages for `reserve_tokens` (>= prompt) at once, or fails with
  // RESOURCE_EXHAUSTED and holds nothing; no more is reserved than the sequence can come to have.
  // INVALID_ARGUMENT: a prompt that is empty or has an id outside the vocabulary, sampling
  // parameters out of range. OUT_OF_RANGE: a prompt that with one output token exceeds
  // max_sequence_tokens(); an engine with more pages may take it. What the prefix cache has of the
  // prompt is not computed, or not received, again: see PrefixUse and cached_tokens(). The output
  // is the same, bit for bit. A sequence that was preempted goes on as a new one: all its tokens
  // are the prompt, max_tokens and min_tokens are less what it had generated, and resumed_tokens is
  // that. Its output is the same.
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(std::vector<int32_t> prompt,
                                                        const SamplingParams& sampling,
                                                        int64_t reserve_tokens,
                                                        PrefixUse use = PrefixUse::kCompute);
  // RESOURCE_EXHAUSTED if NewSequence, which takes a copy of the prompt, would fail with that now:
  // for who asks at every step. Nothing is held, and OK is a hint.
  absl::Status CheckRoom(const std::vector<int32_t>& prompt, int64_t reserve_tokens,
                         PrefixUse use = PrefixUse::kCompute) const;
  // From which position NewSequence would let a prompt be computed, or received, now. Nothing is
  // held: a hint.
  struct PrefixHint {
    int64_t compute_from = 0;
    int64_t receive_from = 0;
  };
  PrefixHint FindPrefix(const std::vector<int32_t>& prompt) const;
  // Instead of destroying a sequence: if its prompt is computed, all that it has computed stays in
  // the prefix cache, as far as the limits go.
  void Retire(std::unique_ptr<Sequence> sequence);
  // Reserves pages up to `tokens`, at most what the sequence can come to have; RESOURCE_EXHAUSTED
  // leaves it as it was.
  absl::Status Grow(Sequence& sequence, int64_t tokens);

  // The state after a hand-off of the whole prompt: every live record of prompt_tokens(), but for
  // the entries of cached_tokens() and the state of state_tokens(), has been scattered into
  // records(), and the prefill worker sampled `first_token`.
  void AdoptHandoff(Sequence& sequence, int32_t first_token);
  // Whether the sequence is finished by what it holds already (a first token that stops it).
  StepOutput::Finish FinishOf(const Sequence& sequence) const;

  // One forward pass over all items, each sequence at most once, none of them finished. Every item
  // must have pages for what it computes: see PositionsAfterDecode. What a sequence generates does
  // not depend on chunking, batch mates or draft_tokens.
  std::vector<StepOutput> Step(std::span<const StepItem> items);
  // Positions that a decode step may compute: [0, this) must be reserved before it. At most
  // computed() + draft_tokens + 1, less where max_tokens or the context is nearer.
  int64_t PositionsAfterDecode(const Sequence& sequence) const;

  // A rank whose caller has nothing to step calls Rest, and JoinPass when `called` says that other
  // ranks compute: none can without it. `called` comes from another thread, once for each Rest, and
  // not any more once OnCall({}) has returned. Alone nothing happens.
  void OnCall(std::function<void()> called);
  void Rest();
  void JoinPass();
  // This rank has no work of its own any more; true once all ranks have said so. Until then it is
  // called. Thread-safe.
  bool LeaveGroup(std::chrono::nanoseconds timeout);

  CacheUsage usage() const;  // thread-safe
  bool has_prefix_cache() const;
  int64_t prefix_pages_evicted() const;  // since the start; thread-safe
  // INTERNAL naming a page or slot that is neither free nor held by whom it says.
  // Thread-safe; takes a look at every page, so for idle times and tests.
  absl::Status AuditCache() const;
  const ModelConfig& model_config() const;
  const CacheGeometry& geometry() const;
  // Longest prompt + output a sequence can have here: context of the model or all pages. A sequence
  // that reaches it is finished with kLength.
  int64_t max_sequence_tokens() const;

  // Name/value pairs that must be equal between two workers for their caches to be exchanged:
  // model hash, cache formats, numerics, index_topk, MTP layers, in a fixed order. draft_tokens is
  // not among them: with an MTP block, prompts always get its cache rows.
  std::vector<std::pair<std::string, std::string>> semantics() const;

 private:
  friend class Sequence;
  struct Impl;
  class StepRun;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
