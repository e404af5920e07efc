#include "router/dispatch/attempt_tracker.h"

namespace baton::router {
namespace {

// A request that kills workers must not take the fleet: one retry after a crash, however many
// attempts the configuration allows.
constexpr int kMaxCrashRetries = 1;

// What kind of failure is worth another try; nullopt: the answer would be the same elsewhere.
std::optional<RetryReason> Classify(const AttemptFailure& failure) {
  switch (failure.status.code()) {
    case absl::StatusCode::kUnavailable:
      // A decode worker that says so itself is not gone: it drains, or shuts down.
      return failure.detail && failure.detail->leg == FailedLeg::kDecode ? RetryReason::kBusy
                                                                         : RetryReason::kCrash;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      // gRPC's words for a stream that was reset under it. A worker that says so of itself means
      // it; what it says of a hand-off may be true of this pair alone.
      if (!failure.detail) return RetryReason::kCrash;
      [[fallthrough]];
    case absl::StatusCode::kFailedPrecondition:
      if (failure.detail && failure.detail->leg != FailedLeg::kDecode) {
        return RetryReason::kTransient;
      }
      return std::nullopt;
    // What this router cancels it hears no more of: the worker ended the call, as one does that
    // stops.
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kResourceExhausted:
      return RetryReason::kBusy;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
      return RetryReason::kTransient;
    default:
      return std::nullopt;
  }
}

}  // namespace

uint32_t AttemptTracker::Begin(const WorkerId& decode) {
  decode_ = decode;
  return ++attempts_;
}

AttemptTracker::Decision AttemptTracker::OnFailure(const AttemptFailure& failure) {
  Decision decision;
  const std::optional<RetryReason> reason = Classify(failure);
  if (failure.detail) decision.leg = failure.detail->leg;
  if (!reason) return decision;

  decision.reason = *reason;
  const bool named = failure.detail && !failure.detail->peer.address.empty();
  decision.culprit = named ? failure.detail->peer : decode_;
  decision.cool_down = *reason == RetryReason::kCrash;
  if (*reason == RetryReason::kCrash) ++crashes_;
  const bool transient = *reason == RetryReason::kTransient;
  shunned_.push_back({decision.culprit, transient ? Shun::kCulprits : Shun::kHopeless});
  if (transient && decision.culprit != decode_) shunned_.push_back({decode_, Shun::kAllInvolved});
  decision.retry = !committed_ && attempts_ < static_cast<uint32_t>(max_attempts_) &&
                   crashes_ <= kMaxCrashRetries;
  return decision;
}

std::vector<WorkerId> AttemptTracker::Avoid(Shun shun) const {
  std::vector<WorkerId> avoid;
  for (const Shunned& shunned : shunned_) {
    if (shunned.up_to >= shun) avoid.push_back(shunned.id);
  }
  return avoid;
}

}  // namespace baton::router
