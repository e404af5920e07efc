#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/policy/prefix_memory.h"
#include "router/registry/snapshot.h"

// Which workers serve a request: filter, score, pick. Pure functions of a snapshot, but for what a
// scorer remembers of earlier decisions.

namespace baton::router {

struct Route;

// Ranks workers of one role; the lowest score is best, equal scores take turns. Thread-safe.
class Scorer {
 public:
  virtual ~Scorer() = default;
  // What earlier decisions say about where a beginning of the prompt is cached.
  virtual std::vector<PrefixMemory::Known> Known(std::span<const int32_t> /*prompt*/) const {
    return {};
  }
  // `cached` of the `prompt` tokens are probably cached there.
  struct Work {
    int64_t prompt = 0;
    int64_t cached = 0;
  };
  virtual double Score(const Worker& worker, const Work& work) const = 0;
  virtual void OnChosen(std::span<const int32_t> /*prompt*/, const Route& /*route*/) {}
};

// "round-robin": all equal, so they take turns. "least-loaded": decode workers by requests, then by
// the used share of their pages; prefill workers by prompt tokens that wait. "prefix-aware": the
// same, but prefill workers by the tokens to be computed until this prompt is done, and a decode
// worker that has a prompt cached may have a few requests more than others.
// InvalidArgument names an unknown policy.
absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& policy);

struct RouteQuery {
  uint32_t prompt_tokens = 0;
  std::span<const int32_t> prompt = {};  // those tokens, or nothing if they are not known
  uint32_t new_tokens = 1;               // that must fit after the prompt, at least 1
  uint64_t ticket = 0;                   // one more with each decision: who is first among equals
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

// Unavailable when no two ready workers fit (registry/fit.h), or only avoided ones are left;
// OutOfRange when every decode worker's context is too short for the prompt and the new tokens, or
// every prefill worker's for the prompt and one (FieldAtFault says which of them). A fleet
// configured without prefill workers prefills on its decode workers.
absl::StatusOr<Route> ChooseRoute(const Snapshot& snapshot, const RouteQuery& query,
                                  Scorer& scorer);

// Whether a request that fits would find workers now.
bool HasRoute(const Snapshot& snapshot);

// What is missing where there is no route, for people: which role has no worker that is ready, and
// why each of them is not, or who does not fit. Empty: HasRoute.
std::string WhyNoRoute(const Snapshot& snapshot);

// The longest context that a ready decode worker offers; 0 when none is ready or none has a limit.
uint32_t LongestContext(const Snapshot& snapshot);

}  // namespace baton::router
