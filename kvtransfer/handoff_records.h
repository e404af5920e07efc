#pragma once

#include <algorithm>
#include <cstdint>

#include "common/cache_layout.h"

namespace baton::kvtransfer {

// What the receiver has of a prompt before a hand-off begins, as its grant says.
struct Held {
  int64_t entries = 0;  // of append-only streams: the records of so many first tokens
  int64_t state = 0;    // of all others: the live records as of so many tokens; 0: none

  // Negative counts, or a state of which some entries are missing, are nobody's.
  bool valid() const { return 0 <= state && state <= entries; }
  friend bool operator==(const Held&, const Held&) = default;
};

// The records of `stream` that a hand-off moves for a prompt of `tokens` >= held.entries. Both
// sides derive from this what is sent and what is expected.
inline IndexRange HandoffRecords(CacheStream stream, const Held& held, int64_t tokens) {
  IndexRange range = LiveRecords(stream, tokens);
  // Live records move forward only, so those held at the end of an earlier state are the first of
  // this one, or behind it.
  const int64_t known = LiveRecords(stream, IsAppendOnly(stream) ? held.entries : held.state).end;
  range.begin = std::min(range.end, std::max(range.begin, known));
  return range;
}

// Payload of such a hand-off, without frame headers.
inline int64_t HandoffBytes(const CacheLayout& layout, const Held& held, int64_t tokens) {
  int64_t bytes = 0;
  for (const StreamLayout& stream : layout.streams) {
    bytes +=
        HandoffRecords(stream.stream, held, tokens).size() * stream.layers * stream.record_bytes;
  }
  return bytes;
}

}  // namespace baton::kvtransfer
