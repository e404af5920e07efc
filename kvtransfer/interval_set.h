#pragma once

#include <vector>

#include "common/cache_layout.h"

namespace baton::kvtransfer {

// A set of indices as sorted, disjoint, non-adjacent ranges. Frames come nearly in order, so there
// are one or two ranges at a time.
class IntervalSet {
 public:
  // Adds `range`; returns the parts of it that were missing, ascending.
  std::vector<IndexRange> Add(IndexRange range);
  void Remove(IndexRange range);

  const std::vector<IndexRange>& ranges() const { return ranges_; }

 private:
  std::vector<IndexRange> ranges_;
};

}  // namespace baton::kvtransfer
