#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/registry/snapshot.h"

// Which workers serve a request: filter, score, pick. Pure functions of a snapshot.

namespace baton::router {

// Ranks workers of one role; the lowest score is best, equal scores take turns.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual double Score(const Worker& worker) const = 0;
};

// "round-robin": all equal, so they take turns. "least-loaded": decode workers by requests, then by
// the used share of their pages; prefill workers by prompt tokens that wait.
// InvalidArgument names an unknown policy.
absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& policy);

struct RouteQuery {
  uint32_t prompt_tokens = 0;
  uint32_t new_tokens = 1;  // that must fit after the prompt, at least 1
  uint64_t ticket = 0;      // one more with each decision: who is first among equals
  Clock::TimePoint now{};
  std::span<const WorkerId> avoid = {};  // failed this request before
};

// Pointers into the snapshot.
struct Route {
  const Worker* decode = nullptr;
  std::vector<const Worker*> prefill;  // best first; empty when the fleet has no prefill workers
};

// How many prefill workers a decode worker is told of: enough to get past a dead one.
inline constexpr size_t kMaxPrefillChoices = 4;

// Unavailable when no pair of ready workers agrees on the semantics hash, or only avoided ones are
// left; OutOfRange when every decode worker's context is too short for the prompt and the new
// tokens, or every prefill worker's for the prompt and one. A fleet configured without prefill
// workers prefills on its decode workers.
absl::StatusOr<Route> ChooseRoute(const Snapshot& snapshot, const RouteQuery& query,
                                  const Scorer& scorer);

// Whether a request that fits would find workers now.
bool HasRoute(const Snapshot& snapshot);

// The longest context that a ready decode worker offers; 0 when none is ready or none has a limit.
uint32_t LongestContext(const Snapshot& snapshot);

}  // namespace baton::router
