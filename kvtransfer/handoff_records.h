#pragma once

#include <algorithm>
#include <cstdint>

#include "common/cache_layout.h"

namespace baton::kvtransfer {

// The records of `stream` that a hand-off moves for a prompt of `tokens` when the records of tokens
// before `first_token` are already with the receiver: new entries of append-only streams, all of
// the state. Both sides derive from this what is sent and what is expected.
inline IndexRange HandoffRecords(CacheStream stream, int64_t first_token, int64_t tokens) {
  IndexRange range = LiveRecords(stream, tokens);
  if (IsAppendOnly(stream)) {
    range.begin = std::min(range.end, LiveRecords(stream, first_token).end);
  }
  return range;
}

// Payload of such a hand-off, without frame headers.
inline int64_t HandoffBytes(const CacheLayout& layout, int64_t first_token, int64_t tokens) {
  int64_t bytes = 0;
  for (const StreamLayout& stream : layout.streams) {
    bytes += HandoffRecords(stream.stream, first_token, tokens).size() * stream.layers *
             stream.record_bytes;
  }
  return bytes;
}

}  // namespace baton::kvtransfer
