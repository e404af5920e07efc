#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/recall/reference_index.h"
#include "kernels/cache_view.h"
#include "kernels/rope.h"
#include "tests/engine/recall/index_activations.h"
#include "tests/kernels/selection_gate.h"

namespace baton::engine {

// The index of one layer in one mode: what the ops get, and what FP32 makes of it.
class SelectionCase {
 public:
  // Every argument but `numerics` outlives the case.
  SelectionCase(const ModelConfig& config, const IndexActivations& activations, Numerics numerics);

  // Rows at positions 4 * entries - 1, ...: all see `entries` entries.
  static int64_t start(int64_t entries) { return kCsaRatio * entries - 1; }
  std::vector<float> Rope(int64_t entries) const;              // [kGateRows, 64]
  std::vector<int32_t> Expected(int64_t entries) const;        // [kGateRows, kGateTopK]
  void Store(int64_t entries, const kernels::PagedPool& pool,  // by the op of the CPU
             const kernels::PageTable& pages) const;

  const IndexActivations& activations() const { return activations_; }
  Numerics numerics() const { return numerics_; }
  int heads() const { return heads_; }

 private:
  const IndexActivations& activations_;
  const Numerics numerics_;
  const int heads_;
  const float eps_;
  const kernels::RopeTable rope_;
  ReferenceIndex reference_;
};

}  // namespace baton::engine
