#pragma once

#include <cstdint>

#include "engine/cache/geometry.h"
#include "engine/model/config.h"

// What a step must compute and read, whatever computes it: the bounds that times are held against.

namespace baton::engine {

// Floating-point operations of the trunk for the row at `position`, without the head: two for each
// weight the row meets, its share of the experts, scores of the index and attention.
double FlopsOfRow(const ModelConfig& config, int64_t position);

// Bytes that a decode step of `batch` sequences of `context` tokens reads at least: weights once,
// of the experts those that a random choice is expected to name, each sequence's index keys,
// selected entries and window. The other parts of the cache are small beside these.
struct LayerBytes {
  double weights = 0;
  double cache = 0;
  double total() const { return weights + cache; }
};
LayerBytes BytesOfLayer(const CacheGeometry& geometry, const ModelConfig& config, LayerKind kind,
                        int64_t batch, int64_t context);
double BytesOfHead(const ModelConfig& config);

}  // namespace baton::engine
