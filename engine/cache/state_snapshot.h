#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/cache_layout.h"

namespace baton::engine {

// One sequence's state at one position: window rows, compressor rows, MTP rows and carry, and the
// entries of a last page that is not full, packed as the records that a hand-off would move. With
// the full pages before, it is all that computing needs to go on from there. A copy that never
// changes, so that any number of sequences may start from it while the one it was taken from goes
// on writing.
class StateSnapshot {
 public:
  // Of positions [0, tokens); their live records must be in `records`: see LiveRecords. Pages
  // before `first_token` are kept by others.
  static std::shared_ptr<const StateSnapshot> Take(const SequenceRecords& records,
                                                   const CacheLayout& layout, int64_t first_token,
                                                   int64_t tokens);
  // Into a sequence of the same layout.
  void Restore(SequenceRecords& records, const CacheLayout& layout) const;

  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return static_cast<int64_t>(bytes_.size()); }

  StateSnapshot(int64_t first_token, int64_t tokens, std::vector<std::byte> bytes)
      : first_token_(first_token), tokens_(tokens), bytes_(std::move(bytes)) {}

 private:
  const int64_t first_token_;
  const int64_t tokens_;
  const std::vector<std::byte> bytes_;  // records in the order of the layout
};

}  // namespace baton::engine
