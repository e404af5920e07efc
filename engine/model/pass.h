#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/model/forward.h"

// A batch is cut into passes: rows that go through all layers together. This bounds scratch memory
// whatever a caller asks for, and is invisible in the result: a later pass reads from the cache
// what an earlier one wrote.

namespace baton::engine {

inline int64_t RowsOf(const SequenceChunk& chunk) { return std::ssize(chunk.tokens); }
inline int64_t RowsOf(const MtpChunk& chunk) { return std::ssize(chunk.next_tokens); }
// Rows from here on are wanted in ForwardResult::streams.
inline int64_t FirstStreamsRow(const SequenceChunk& chunk) { return chunk.first_streams_row; }
inline int64_t FirstStreamsRow(const MtpChunk& chunk) {
  return chunk.wants_streams ? 0 : RowsOf(chunk);
}

inline int64_t WantedLogits(const SequenceChunk& chunk) {
  return RowsOf(chunk) - chunk.first_logits_row;
}
inline int64_t WantedLogits(const MtpChunk& chunk) {
  return chunk.wants_logits ? RowsOf(chunk) : 0;
}

// Consecutive rows of one sequence within a pass.
struct Segment {
  int64_t first_row = 0;  // within the pass
  int64_t rows = 0;
  int64_t start = 0;  // position of the first row
  std::span<const int32_t> pages = {};
  int slot = 0;
};

// How the wanted rows of a batch are sampled, in their order; empty: not at all.
std::vector<RowSampling> SamplingOf(std::span<const SequenceChunk> batch);
std::vector<RowSampling> SamplingOf(std::span<const MtpChunk> batch);

struct Pass {
  int64_t first_row = 0;  // within the batch
  std::vector<Segment> segments;
  std::vector<int32_t> tokens;       // of every row
  std::vector<int64_t> positions;    // of every row
  std::vector<int64_t> logits_rows;  // rows of the pass that get logits, ascending

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

// Passes of at most max_rows rows, and of at most max_page_ids page ids where every sequence takes
// as many as the one with the most pages. All but the last are as large as that allows.
std::vector<Pass> PlanPasses(std::span<const SequenceChunk> batch, int64_t max_rows,
                             int64_t max_page_ids = std::numeric_limits<int64_t>::max());

// Rows of the MTP block, without page tables; a row's token is its next one.
std::vector<Pass> PlanPasses(std::span<const MtpChunk> batch, int64_t max_rows);

}  // namespace baton::engine
