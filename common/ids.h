#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// 128 random bits that name a request throughout the fleet; 32 lower-case hex digits as text.
struct RequestId {
  uint64_t high = 0;
  uint64_t low = 0;

  static RequestId Random();
  static absl::StatusOr<RequestId> Parse(std::string_view hex);
  std::string ToString() const;

  friend bool operator==(const RequestId&, const RequestId&) = default;
  friend auto operator<=>(const RequestId&, const RequestId&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const RequestId& id) {
    return H::combine(std::move(state), id.high, id.low);
  }
};

// One try at serving a request. Each retry has a new attempt number, so that a late message of an
// old try can be told from the current one.
struct AttemptId {
  RequestId request;
  uint32_t attempt = 0;

  std::string ToString() const;  // "<request>/<attempt>"

  friend bool operator==(const AttemptId&, const AttemptId&) = default;
  friend auto operator<=>(const AttemptId&, const AttemptId&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const AttemptId& id) {
    return H::combine(std::move(state), id.request, id.attempt);
  }
};

// Random, non-zero, new at every process start: tells a restarted worker from its predecessor at
// the same address.
using Incarnation = uint64_t;
Incarnation NewIncarnation();

}  // namespace baton
