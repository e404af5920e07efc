#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

// Who may wait on this decode worker. Pure; its owner locks it.
//
// A request waits from admission until its sequence runs. Waiting requests are bounded in all, and
// per prefill worker: one that is stuck fills its own quota, not the queue.

namespace baton::decode {

struct AdmissionLimits {
  size_t waiting = 256;
  size_t waiting_per_prefill = 64;
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED when full. Every OK is paid back by one Leave.
  absl::Status Enter();
  void Leave();
  size_t waiting() const { return waiting_; }

  // The first of candidates[from...] whose quota has room, now one smaller; candidates.size() when
  // none has. Paid back by Unassign.
  size_t Assign(const std::vector<std::string>& candidates, size_t from);
  void Unassign(const std::string& prefill_worker);

 private:
  AdmissionLimits limits_;
  size_t waiting_ = 0;
  absl::flat_hash_map<std::string, size_t> per_prefill_;
};

}  // namespace baton::decode
