#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// One request of a workload, as a line of a Mooncake trace.
struct TraceRequest {
  int64_t timestamp_ms = 0;   // arrival, since the beginning
  int64_t input_length = 0;   // prompt tokens
  int64_t output_length = 0;  // tokens to generate
  // One for each block of the prompt, the last of which may be partial: equal ids stand for equal
  // tokens behind equal beginnings, which a prefix cache can reuse.
  std::vector<int64_t> hash_ids = {};
  // Requests of a session, if it is >= 0, follow one another. Not part of the original schema.
  int64_t session_id = -1;

  bool operator==(const TraceRequest&) const = default;
};

// Of JSON lines {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]},
// timestamps in milliseconds. Unknown members are skipped. INVALID_ARGUMENT names `source`, line
// and member: lengths are from 1 to 2^24, timestamps
// from 0 to below 2^53, and they do not decrease.
absl::StatusOr<std::vector<TraceRequest>> ParseTrace(absl::string_view text,
                                                     absl::string_view source);

std::string TraceText(const std::vector<TraceRequest>& requests);

}  // namespace baton::cli
