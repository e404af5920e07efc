#include "engine/cuda/step_graphs.h"

#include <algorithm>
#include <bit>

namespace baton::engine::cuda {
namespace {

int64_t PowerOfTwo(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

// 1, 2, 4, multiples of 8, then of an eighth of the next power of two: little is computed for
// nothing.
int64_t RoundUpRows(int64_t rows) {
  const int64_t step = std::max<int64_t>(8, PowerOfTwo(rows) / 8);
  return rows <= 4 ? PowerOfTwo(rows) : (rows + step - 1) / step * step;
}

// With what follows from rows and positions.
PassShape Filled(PassShape shape, int page_tokens) {
  shape.sequences = shape.rows;  // as many as have a row each
  if (page_tokens > 0) shape.pages = (shape.positions + page_tokens - 1) / page_tokens;
  return shape;
}

}  // namespace

bool StepGraphs::Serve(const Pass& pass) {
  return pass.rows() <= Wish::kMaxStepRows && std::ssize(pass.logits_rows) == pass.rows() &&
         std::all_of(pass.segments.begin(), pass.segments.end(),
                     [](const Segment& segment) { return segment.rows <= Wish::kMaxSequenceRows; });
}

PassShape StepGraphs::RoundUp(const PassShape& shape, int page_tokens, int64_t limit) {
  PassShape rounded{.rows = RoundUpRows(shape.rows),
                    .sequence_rows = PowerOfTwo(shape.sequence_rows)};
  if (page_tokens > 0) {
    rounded.positions = std::min(limit, std::max(kMinPositions, PowerOfTwo(shape.positions)));
  }
  return Filled(rounded, page_tokens);
}

PassShape StepGraphs::ShapeOf(const Step& step, int64_t rows, int page_tokens) {
  return Filled({.rows = rows, .sequence_rows = step.sequence_rows, .positions = step.positions},
                page_tokens);
}

void StepGraphs::Run(const Step& step, uint64_t cache, CUstream_st* stream,
                     const std::function<void()>& issue) {
  ++runs_;
  const Key key{cache, step.kind, step.rows, step.sequence_rows, step.positions};
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) {
    found->second.used = runs_;
    return found->second.graph.Launch(stream);
  }
  issue();
  MakeRoom();
  graphs_.emplace(key, Entry{kernels::Graph::Capture(stream, issue), runs_});
}

void StepGraphs::MakeRoom() {
  if (graphs_.size() < kMaxGraphs) return;
  graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  }));
}

}  // namespace baton::engine::cuda
