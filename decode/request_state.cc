#include "decode/request_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::decode {
namespace {

// What the end of a prefill worker's stream means for the request. An OK before its time is as much
// a failure as any other; CANCELLED and DEADLINE_EXCEEDED are the worker's own, not the client's,
// and say no more than that it did not deliver. Once the request has been accepted, what is wrong
// is the hand-off, and not for the client to put right.
absl::Status AsFailure(absl::Status status, bool accepted) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return accepted ? absl::FailedPreconditionError(status.message()) : status;
    case absl::StatusCode::kOk:
      return absl::InternalError("the prefill worker ended the hand-off before it was complete");
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnknown:
      return absl::UnavailableError(status.message());
    default:
      return status;
  }
}

}  // namespace

Action RequestState::End(absl::Status status, Leg leg) {
  if (phase_ == Phase::kEnded) return Action::kNone;
  phase_ = Phase::kEnded;
  end_leg_ = leg;
  end_status_ = std::move(status);
  return Action::kEnd;
}

// A prefill worker that has started waits only so long for the grant. When it gives up for want of
// pages, it is this worker that is full, and that others should avoid; but not when the pages had
// been granted: then the grant was lost or late, and the next one may not be.
Action RequestState::EndByStream(absl::Status status) {
  if (!asked_pages_ || !absl::IsResourceExhausted(status)) {
    return End(AsFailure(std::move(status), accepted_), Leg::kPrefill);
  }
  if (phase_ == Phase::kPrefilling) return End(std::move(status), Leg::kDecode);
  return End(absl::AbortedError(absl::StrCat("pages were granted, but: ", status.message())),
             Leg::kTransfer);
}

Action RequestState::OnDispatch(size_t candidate) {
  if (phase_ != Phase::kQueued) return Action::kNone;
  if (candidates_ == 0) {
    phase_ = Phase::kLocal;
    return Action::kAskPages;
  }
  BATON_CHECK(candidate < candidates_);
  phase_ = Phase::kPrefilling;
  candidate_ = candidate;
  return Action::kAskPeer;
}

Action RequestState::OnRefused(size_t next, absl::Status why) {
  if (phase_ != Phase::kPrefilling || accepted_) return Action::kNone;
  if (next >= candidates_) return End(AsFailure(std::move(why), accepted_), Leg::kPrefill);
  candidate_ = next;
  started_ = finished_ = false;  // what the one before said, whose word does not count
  return Action::kAskPeer;
}

Action RequestState::OnAccepted() {
  accepted_ = true;
  return started_ ? OnStarted() : Action::kNone;  // if that was overtaken
}

// There is nobody to grant pages to before it is known who accepted.
Action RequestState::OnStarted() {
  if (phase_ != Phase::kPrefilling || asked_pages_) return Action::kNone;
  started_ = true;
  if (!accepted_) return Action::kNone;
  asked_pages_ = true;
  return Action::kAskPages;
}

Action RequestState::OnGranted() {
  BATON_CHECK(phase_ == Phase::kPrefilling);
  phase_ = Phase::kLanding;
  landing_open_ = true;
  return Action::kNone;
}

Action RequestState::OnFinished() {
  if (phase_ == Phase::kPrefilling) {
    finished_ = true;
    return OnStarted();
  }
  if (phase_ != Phase::kLanding) return Action::kNone;
  finished_ = true;
  if (!landed_) return Action::kNone;
  phase_ = Phase::kRunning;
  return Action::kAdopt;
}

Action RequestState::OnLanded(absl::Status status) {
  BATON_CHECK(landing_open_);
  landing_open_ = false;
  if (phase_ != Phase::kLanding) return Action::kNone;
  if (!status.ok()) {
    return stream_ended_ ? EndByStream(stream_status_)
                         : End(AsFailure(std::move(status), accepted_), Leg::kTransfer);
  }
  landed_ = true;
  if (finished_) {
    phase_ = Phase::kRunning;
    return Action::kAdopt;
  }
  // The cache without the first token is of no use.
  if (stream_ended_) return EndByStream(stream_status_);
  return Action::kNone;
}

Action RequestState::OnStreamEnded(absl::Status status) {
  if (phase_ == Phase::kPrefilling) return EndByStream(std::move(status));
  if (phase_ != Phase::kLanding || stream_ended_) return Action::kNone;
  stream_ended_ = true;
  stream_status_ = std::move(status);
  if (landed_) return EndByStream(stream_status_);
  // Every byte may be there already: fence first, then judge by what landed.
  return Action::kFence;
}

Action RequestState::OnLocalPrefilled() {
  if (phase_ != Phase::kLocal) return Action::kNone;
  phase_ = Phase::kRunning;
  return Action::kNone;
}

Action RequestState::OnPreempted() {
  BATON_CHECK(phase_ == Phase::kRunning || phase_ == Phase::kLocal);
  phase_ = Phase::kLocal;
  return Action::kAskPages;
}

Action RequestState::OnEnd(absl::Status status, Leg leg) { return End(std::move(status), leg); }

}  // namespace baton::decode
