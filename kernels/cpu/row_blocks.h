#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace baton::kernels {

// Rows [begin, end) of one of several sequences.
template <typename Params>
struct RowBlock {
  const Params* sequence = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

// All rows of all sequences in blocks of at most rows_at_once(sequence).
template <typename Params, typename RowsAtOnce>
std::vector<RowBlock<Params>> CutIntoBlocks(std::span<const Params> sequences,
                                            RowsAtOnce rows_at_once) {
  std::vector<RowBlock<Params>> blocks;
  for (const Params& sequence : sequences) {
    const int64_t rows = sequence.q.rows;
    const int64_t step = rows_at_once(sequence);
    for (int64_t begin = 0; begin < rows; begin += step) {
      blocks.push_back({&sequence, begin, std::min(begin + step, rows)});
    }
  }
  return blocks;
}

}  // namespace baton::kernels
