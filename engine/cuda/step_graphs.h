#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>

#include "engine/cuda/pass_arrays.h"
#include "engine/model/pass.h"
#include "kernels/runtime/graph.h"

namespace baton::engine::cuda {

// Decoding steps as CUDA graphs: some two thousand launches a step of a large model would otherwise
// take longer than the work. A graph fits all steps of its shape: fewer sequences leave padded
// rows, shorter contexts leave blocks without work. So shapes are rounded up, which keeps graphs
// few.
class StepGraphs {
 public:
  static constexpr int64_t kMaxRows = 256;        // of a step
  static constexpr int64_t kMaxSequenceRows = 8;  // the newest token and its drafts
  static constexpr int64_t kMinPositions = 4096;  // a graph per power of two from here on
  static constexpr size_t kMaxGraphs = 64;        // the one used longest ago goes first

  // Whether a pass is a decoding step: few rows, each with logits.
  static bool Serve(const Pass& pass);
  // Sizes of the graph for a step; `limit`: positions that no sequence exceeds.
  static PassShape RoundUp(const PassShape& shape, int page_tokens, int64_t limit);

  // Runs what `issue` issues for the shape, over the cache with that id. The first time it is
  // issued, then captured for the times to come.
  void Run(const PassShape& shape, uint64_t cache, CUstream_st* stream,
           const std::function<void()>& issue);

 private:
  struct Key {
    uint64_t cache;
    int64_t rows;
    int64_t sequence_rows;
    int64_t positions;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    kernels::Graph graph;
    int64_t used = 0;  // at which run
  };

  void MakeRoom();

  std::map<Key, Entry> graphs_;
  int64_t runs_ = 0;
};

}  // namespace baton::engine::cuda
