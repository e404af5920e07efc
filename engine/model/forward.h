#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/base/bf16.h"
#include "common/base/token_logprobs.h"
#include "engine/cache/storage.h"
#include "engine/model/config.h"
#include "engine/sampler/sampler.h"
#include "kernels/matrix.h"
#include "kernels/numeric.h"

// The forward pass over the paged cache: any mix of sequences, any chunking. It is stateless but
// for scratch memory, which never grows with context length beyond a fixed budget; all state of a
// sequence lies in its pages and its slot. Engine thread only.

namespace baton::engine {

// How index keys, index queries and KV are valued (not stored): kReference simulates the FP8 and
// FP4 grids the model was trained with, kExact leaves the values as computed.
using kernels::Numerics;

class ExpertGroup;

struct ForwardOptions {
  Numerics numerics = Numerics::kReference;
  int index_topk = 0;  // 0: the checkpoint's value
  int threads = 0;     // CPU worker threads; 0: all cores
  // Rows that calls bring at most. More go through the layers some at a time, as any call may; a
  // GPU has memory for no more. 0: not known.
  int64_t max_rows = 0;
  // A row's bits depend neither on its batch nor on the chunks of its sequence, as they never do on
  // a CPU.
  bool deterministic = false;
  // The ranks that share the routed experts; outlives the model. Null: it has all of them.
  ExpertGroup* group = nullptr;

  int TopkFor(const ModelConfig& config) const {
    return index_topk > 0 ? index_topk : config.index_topk;
  }
};

// Tokens [start, start + tokens.size()) of one sequence. A sequence appears at most once a batch.
// Rows >= start that an earlier, rejected call wrote are overwritten; `start` may lie at most
// rollback_rows below the end of the longest call before.
struct SequenceChunk {
  std::span<const int32_t> tokens;  // ids of the vocabulary
  int64_t start = 0;                // == positions of the sequence already computed
  std::span<const int32_t> pages;   // page table; covers start + tokens.size() tokens
  int slot = 0;
  int first_logits_row = 0;   // rows [first_logits_row, tokens.size()) get logits
  int first_streams_row = 0;  // rows [first_streams_row, tokens.size()) get streams
  // One for each row that gets logits: then the call returns tokens, and no logits. Either all
  // chunks of a call say how or none does.
  std::span<const RowSampling> sampling = {};
};

// One row t of the MTP block per entry: streams[t] = X[t], next_tokens[t] = token t + 1. Its logits
// predict token t + 2. Reads and writes the slot's MTP window.
struct MtpChunk {
  std::span<const int32_t> next_tokens;
  // [next_tokens.size(), streams, hidden]. Chunks that want logits may leave it empty, all of a
  // call or none: then the slot's carry has them.
  std::span<const BFloat16> streams;
  int64_t start = 0;  // position t of the first row
  int slot = 0;
  bool wants_logits = false;                   // false: only the window rows are written
  bool wants_streams = false;                  // beside the logits
  std::span<const RowSampling> sampling = {};  // as in SequenceChunk
};

// Valid until the next call of the same function. The streams of either may be given to the
// ForwardMtp call right after it.
struct ForwardResult {
  // Row-major [wanted rows in batch order, vocab_size], FP32; empty if tokens were asked for.
  std::span<const float> logits;
  std::span<const int32_t> tokens;  // [wanted rows in batch order]
  // Of those of these rows whose sampling asks, in the same order: kernels/logprobs.h.
  std::span<const TokenLogprobs> logprobs;
  // X after the last layer, row-major [wanted rows in batch order, streams, hidden].
  std::span<const BFloat16> streams;
};

// What tests and the golden tool may watch. Null members cost nothing. A large batch goes through
// the layers some rows at a time, so that each layer is reported once for every such pass.
struct ForwardObserver {
  // After every trunk layer: X of the pass's rows; `first_row` is the batch row of the first.
  std::function<void(int layer, int64_t first_row, std::span<const BFloat16> streams)> on_layer;
  // Per CSA layer and batch row: the entries the indexer selected, ascending.
  std::function<void(int layer, int64_t row, std::span<const int32_t> entries)> on_selection;

  // The rest explains a selection, on the CPU only: models of other backends refuse it (fatal).
  // Per CSA layer and sequence of the pass: entries [first_entry, first_entry + pooled.rows) of the
  // index, [entries, 128], as they were pooled: before norm, rotation, grid and store.
  std::function<void(int layer, int64_t first_entry, kernels::MatrixView<const BFloat16> pooled)>
      on_index_entries = nullptr;
  // Per CSA layer and batch row: the index query [heads * 128] before rotation and grid, and the
  // weights [heads] before they are scaled.
  std::function<void(int layer, int64_t row, std::span<const BFloat16> q,
                     std::span<const BFloat16> w)>
      on_index_query = nullptr;
  // Per CSA layer and batch row: the score of every entry that the row sees. They are computed once
  // more for this, so it is meant for batches of few rows; so is what follows.
  std::function<void(int layer, int64_t row, std::span<const float> scores)> on_scores = nullptr;
  // Per CSA layer and batch row: shares[h, i] is what part of head h's attention, sink included,
  // goes to the i-th selected entry.
  std::function<void(int layer, int64_t row, kernels::MatrixView<const float> shares)>
      on_attention = nullptr;

  bool explains() const { return on_index_entries || on_index_query || on_scores || on_attention; }
};

// A checkpoint loaded by a backend (backend.h). Its cache must come from the same backend.
class Model {
 public:
  Model(const ModelConfig& config, const ForwardOptions& options)
      : config_(config), options_(options) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Writes all cache rows of the chunks, and with an MTP block the carry of their last
  // rollback_rows + 1 positions.
  virtual ForwardResult Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                                const ForwardObserver& observer) = 0;
  ForwardResult Forward(std::span<const SequenceChunk> batch, CacheStorage& cache) {
    return Forward(batch, cache, ForwardObserver{});
  }
  // Only for models with an MTP block.
  virtual ForwardResult ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache) = 0;
  // Takes part, with no rows, in the pass that the group has called for; see ExpertGroup::TakeCall.
  // Forward and ForwardMtp do so themselves for passes that go before theirs.
  virtual void JoinPass() = 0;

  const ModelConfig& config() const { return config_; }
  const ForwardOptions& options() const { return options_; }
  int index_topk() const { return options_.TopkFor(config_); }

 private:
  const ModelConfig config_;
  const ForwardOptions options_;
};

}  // namespace baton::engine
