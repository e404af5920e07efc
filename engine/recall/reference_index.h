#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/bf16.h"
#include "engine/model/config.h"
#include "engine/model/forward.h"
#include "kernels/matrix.h"

namespace baton::engine {

// The index of one CSA layer as FP32 has it: keys and queries from what the layer pooled and
// projected, kept in FP32, scored in FP32. It shares no code with the ops, the store and the page
// table, so that a fault of theirs cannot be in it too.
//
// kReference rounds to BF16 after each step and to the FP4 grid, for there these are the values
// that the model was trained with. kExact rounds nothing.
class ReferenceIndex {
 public:
  // `norm`: weights of the index compressor's norm, [128].
  ReferenceIndex(const ModelConfig& config, Numerics numerics, std::vector<float> norm);

  // As ForwardObserver::on_index_entries reports them: rows are entries first_entry, ...
  void SetEntries(int64_t first_entry, kernels::MatrixView<const BFloat16> pooled);

  // Scores, for the row at `position`, of the entries it sees; all of them must have been set. q
  // and w as ForwardObserver::on_index_query reports them.
  std::vector<float> Scores(int64_t position, std::span<const BFloat16> q,
                            std::span<const BFloat16> w) const;

 private:
  void Rotate(std::span<float> vector, int64_t position) const;
  // Rotation, Hadamard transform, grid.
  void Finish(std::span<float> vector, int64_t position) const;
  float Rounded(float value) const;

  const Numerics numerics_;
  const float eps_;
  const std::vector<float> norm_;
  std::vector<float> frequencies_;  // of the rotation, [32]
  std::vector<float> keys_;         // [entries, 128]
};

}  // namespace baton::engine
