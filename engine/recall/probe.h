#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "engine/engine.h"
#include "engine/model/backend.h"
#include "engine/model/forward.h"

// One prompt at a time through the model as a worker computes it - chunks over pages and a slot,
// then token by token, greedily - and what the indexer made of a certain stretch of it.

namespace baton::engine {

struct ProbeOptions {
  EngineOptions engine;
  int64_t chunk_tokens = 1024;
  // The prompt is computed in one cache, handed over to another of other page size, and the answer
  // decoded there.
  bool handoff = false;
};

struct ProbeRequest {
  std::vector<int32_t> prompt;
  IndexRange needle;  // the tokens that hold the answer
  int max_tokens = 24;
  bool explain = false;
};

// What one row made of one entry of the needle. FP32: see ReferenceIndex. Ranks count from 0.
struct EntryReport {
  int64_t entry = 0;
  int64_t rank = 0;
  int64_t rank_fp32 = 0;
  float score = 0;
  float score_fp32 = 0;
  bool selected = false;
  bool selected_fp32 = false;
  float attention = 0;  // the largest share of a head's attention that it got
};

struct LayerReport {
  int layer = 0;
  int64_t visible = 0;   // entries to choose from
  int64_t selected = 0;  // how many were
  double overlap = 1;    // the share of them that FP32 selects too
  std::vector<EntryReport> needle;
};

// The row that gave a token of the answer.
struct RowReport {
  int64_t position = 0;
  int32_t token = 0;  // that it gave
  std::vector<LayerReport> layers;
};

// Records of one stream before and after the hand-off.
struct StreamReport {
  CacheStream stream = CacheStream::kCsaKv;
  int64_t records = 0;
  int64_t different = 0;
};

struct ProbeAnswer {
  std::vector<int32_t> tokens;  // generated, without the end of sequence
  std::vector<RowReport> rows;  // with `explain`: of each token, the end of sequence included
  std::vector<StreamReport> handoff;
  double prefill_seconds = 0;
  int64_t cache_bytes = 0;  // pages in use and a slot
};

class Probe {
 public:
  static absl::StatusOr<std::unique_ptr<Probe>> Create(const ProbeOptions& options);
  ~Probe();

  // INVALID_ARGUMENT: a prompt that is empty, too long for the pages or has unknown tokens; a
  // needle outside of it; an explanation asked of a device other than the CPU.
  absl::StatusOr<ProbeAnswer> Ask(const ProbeRequest& request);

  const ModelConfig& model_config() const;

 private:
  struct Impl;
  explicit Probe(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
