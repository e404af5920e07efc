#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/bf16.h"
#include "engine/model/config.h"

// What the indexers of needle-17m get in long texts, as the engine computes it on the CPU. Nothing
// of it is stored: a checkpoint and a seed are small.

namespace baton::engine {

// Of one CSA layer, as ForwardObserver has it: before norm, rotation and grid.
struct IndexActivations {
  std::vector<float> norm;       // [128], weights of the index compressor's norm
  std::vector<BFloat16> pooled;  // [entries, 128]
  std::vector<BFloat16> q;       // [rows, heads * 128]
  std::vector<BFloat16> w;       // [rows, heads]
};

struct CapturedIndex {
  ModelConfig config;
  std::map<int, IndexActivations> layers;
};

// Entries of texts of 4,096 tokens each, one behind another as if they were one text: what an entry
// holds depends on the text near it. `entries` is a multiple of 1,024. Each of the first `rows`
// texts gives one row, the one that answers its question.
CapturedIndex CaptureIndex(int64_t entries, int rows);

// The same entries again and again, up to `entries`: each is at a position of its own, and so
// becomes a key of its own.
void RepeatEntries(int64_t entries, CapturedIndex& captured);

}  // namespace baton::engine
