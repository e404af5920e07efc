#include "router/dispatch/client_status.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace baton::router {

absl::Status ToClientStatus(const AttemptFailure& failure, const std::string& decode,
                            std::chrono::nanoseconds limit) {
  const absl::Status& status = failure.status;
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the request took longer than its limit of ",
        absl::FormatDuration(absl::Ceil(absl::FromChrono(limit), absl::Milliseconds(1)))));
  }
  // It speaks of two workers that do not fit each other, not of the request: until they are put
  // right there is nobody to serve it.
  if (absl::IsFailedPrecondition(status)) {
    const std::string peer = failure.detail ? failure.detail->peer.address : "";
    return absl::UnavailableError(absl::StrCat(
        "decode worker ", decode, " cannot work with ",
        peer.empty() || peer == decode ? "a prefill worker" : absl::StrCat("prefill worker ", peer),
        ": ", status.message()));
  }
  // Not by the client: that is no attempt that failed.
  if (absl::IsCancelled(status)) {
    return absl::UnavailableError("the decode worker ended the request before it was complete");
  }
  if (!failure.detail) {
    switch (status.code()) {
      case absl::StatusCode::kUnavailable:
        return absl::UnavailableError("the decode worker is gone or cannot be reached");
      case absl::StatusCode::kInternal:
      case absl::StatusCode::kUnknown:
        return absl::Status(status.code(), "the connection to the decode worker broke");
      default:
        return status;
    }
  }
  if (failure.detail->leg != FailedLeg::kDecode && absl::IsUnavailable(status)) {
    return absl::UnavailableError("the prefill worker is gone or cannot be reached");
  }
  return status;
}

}  // namespace baton::router
