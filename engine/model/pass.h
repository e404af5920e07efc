#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/forward.h"

// A batch is cut into passes: rows that go through all layers together. This bounds scratch memory
// whatever a caller asks for, and is invisible in the result: a later pass reads from the cache
// what an earlier one wrote.

namespace baton::engine {

// Consecutive rows of one sequence within a pass.
struct Segment {
  int64_t first_row = 0;  // within the pass
  int64_t rows = 0;
  int64_t start = 0;  // position of the first row
  std::span<const int32_t> pages = {};
  int slot = 0;
};

struct Pass {
  int64_t first_row = 0;  // within the batch
  std::vector<Segment> segments;
  std::vector<int32_t> tokens;       // of every row
  std::vector<int64_t> positions;    // of every row
  std::vector<int64_t> logits_rows;  // rows of the pass that get logits, ascending

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

// Large enough that weights are read from memory rarely, small enough that activations stay near
// the cores.
inline constexpr int64_t kMaxPassRows = 256;

std::vector<Pass> PlanPasses(std::span<const SequenceChunk> batch);

// The rows of one chunk of the MTP block.
std::vector<Pass> PlanPasses(const MtpChunk& chunk);

}  // namespace baton::engine
