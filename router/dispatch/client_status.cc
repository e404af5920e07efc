#include "router/dispatch/client_status.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace baton::router {

absl::Status ToClientStatus(const AttemptFailure& failure, std::chrono::nanoseconds limit) {
  const absl::Status& status = failure.status;
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the request took longer than its limit of ",
        absl::FormatDuration(absl::Ceil(absl::FromChrono(limit), absl::Milliseconds(1)))));
  }
  // It speaks of two workers that do not fit each other, not of the request.
  if (absl::IsFailedPrecondition(status)) {
    const bool named = failure.detail && !failure.detail->peer.address.empty();
    return absl::InternalError(
        absl::StrCat("two workers cannot work together",
                     named ? absl::StrCat(", one of them ", failure.detail->peer.address) : "",
                     "; the router's log says why"));
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
