#include "kvtransfer/interval_set.h"

#include <algorithm>
#include <utility>

namespace baton::kvtransfer {

std::vector<IndexRange> IntervalSet::Add(IndexRange range) {
  std::vector<IndexRange> missing;
  if (range.size() == 0) return missing;
  // Ranges that touch or overlap the new one are [first, last).
  const auto first =
      std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                       [](const IndexRange& r, int64_t begin) { return r.end < begin; });
  auto last = first;
  IndexRange merged = range;
  int64_t next = range.begin;
  for (; last != ranges_.end() && last->begin <= range.end; ++last) {
    if (next < last->begin) missing.push_back({next, last->begin});
    next = std::max(next, last->end);
    merged.begin = std::min(merged.begin, last->begin);
    merged.end = std::max(merged.end, last->end);
  }
  if (next < range.end) missing.push_back({next, range.end});
  if (first == last) {
    ranges_.insert(first, merged);
  } else {
    *first = merged;
    ranges_.erase(first + 1, last);
  }
  return missing;
}

void IntervalSet::Remove(IndexRange range) {
  std::vector<IndexRange> left;
  for (const IndexRange& known : ranges_) {
    const IndexRange before{known.begin, std::min(known.end, range.begin)};
    const IndexRange after{std::max(known.begin, range.end), known.end};
    if (range.size() == 0 || before.end == known.end || after.begin == known.begin) {
      left.push_back(known);
      continue;
    }
    if (before.size() > 0) left.push_back(before);
    if (after.size() > 0) left.push_back(after);
  }
  ranges_ = std::move(left);
}

}  // namespace baton::kvtransfer
