#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "engine/cuda/pass_arrays.h"
#include "engine/model/pass.h"
#include "engine/parallel/step_board.h"
#include "kernels/runtime/graph.h"

namespace baton::engine::cuda {

// Decoding steps as CUDA graphs: some two thousand launches a step of a large model would otherwise
// take longer than the work. A graph fits all steps of its shape: fewer sequences leave padded
// rows, shorter contexts leave blocks without work. So shapes are rounded up, which keeps graphs
// few.
// A captured exchange between ranks is one of all of them: they capture it in the same step, and
// each replays what it captured then. So a step has the same shape on all ranks, graphs are kept
// by what all know of a step, and the one that goes is decided by steps alone: ranks that have run
// the same steps, each over one cache, have the same graphs.
class StepGraphs {
 public:
  static constexpr int64_t kMinPositions = 4096;  // a graph per power of two from here on
  static constexpr size_t kMaxGraphs = 128;       // the one used longest ago goes first

  // Whether a pass is a decoding step: few rows, each with logits.
  static bool Serve(const Pass& pass);
  // Sizes of the graph for a step; `limit`: positions that no sequence exceeds.
  static PassShape RoundUp(const PassShape& shape, int page_tokens, int64_t limit);

  // The shape of a step that is the same for all ranks, for one that brings so many rows.
  static PassShape ShapeOf(const Step& step, int64_t rows, int page_tokens);

  // Runs what `issue` issues for such a step, over the cache with that id. The first time it is
  // issued, then captured for the times to come.
  void Run(const Step& step, uint64_t cache, CUstream_st* stream,
           const std::function<void()>& issue);

 private:
  struct Key {
    uint64_t cache;
    PassKind kind;
    std::vector<int64_t> rows;  // of each rank
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
