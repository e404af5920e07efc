#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "router/registry/snapshot.h"

// Decides what happens after an attempt at a request failed. Pure: no thread, socket or clock.

namespace baton::router {

// On which side of the decode worker an attempt failed. Label values: closed.
enum class FailedLeg { kDecode, kPrefill, kTransfer };
constexpr auto LabelValues(FailedLeg) {
  return std::to_array<const char*>({"decode", "prefill", "transfer"});
}

enum class RetryReason {
  kCrash,      // the worker or the way to it is gone; the request itself may be what kills it
  kBusy,       // it refused, for want of room or because it drains
  kTransient,  // a hand-off was disturbed: another try may well succeed
};
constexpr auto LabelValues(RetryReason) {
  return std::to_array<const char*>({"crash", "busy", "transient"});
}

struct AttemptFailure {
  absl::Status status = {};
  // From the worker's failure detail. Without one the status was made by the transport, on its own
  // side or because the process that should have answered is gone.
  struct Detail {
    FailedLeg leg = FailedLeg::kDecode;
    WorkerId peer = {};  // an empty address: not named
  };
  std::optional<Detail> detail = {};
};

// Follows the attempts at one request.
class AttemptTracker {
 public:
  // `max_attempts` counts the first one; at least 1.
  explicit AttemptTracker(int max_attempts) : max_attempts_(max_attempts) {}

  // The number of the attempt that starts now: 1, 2, ...
  uint32_t Begin(const WorkerId& decode);

  // From now on the client has seen something of the present attempt: no other can replace it.
  void Commit() { committed_ = true; }

  struct Decision {
    bool retry = false;
    RetryReason reason = RetryReason::kCrash;  // of retries
    FailedLeg leg = FailedLeg::kDecode;
    // Who is to blame; empty address: nobody, the request itself failed.
    WorkerId culprit;
    bool cool_down = false;  // the culprit should be spared by other requests too
  };
  Decision OnFailure(const AttemptFailure& failure);

  uint32_t attempts() const { return attempts_; }

  // Workers that this request failed on, from the strictest to the most tolerant view.
  enum class Shun {
    kAllInvolved,  // of a hand-off that failed, the decode worker too: either may be at fault
    kCulprits,     // who was blamed
    kHopeless,     // without those of a disturbed hand-off, which is no reason to shun for good
  };
  std::vector<WorkerId> Avoid(Shun shun) const;

 private:
  struct Shunned {
    WorkerId id;
    Shun up_to;  // the most tolerant view that still shuns it
  };

  const int max_attempts_;
  uint32_t attempts_ = 0;
  int crashes_ = 0;
  bool committed_ = false;
  WorkerId decode_;
  std::vector<Shunned> shunned_;
};

}  // namespace baton::router
