#include "router/dispatch/client_status.h"

#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using baton::testing::StatusIs;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTransportWords[] = "ipv4:127.0.0.1:34633: Failed to connect to remote host";

AttemptFailure Failure(absl::Status status) { return {.status = std::move(status)}; }

AttemptFailure Failure(absl::Status status, FailedLeg leg) {
  return {.status = std::move(status), .detail = AttemptFailure::Detail{.leg = leg}};
}

TEST(ClientStatusTest, WordsOfTheTransportAreNotPassedOn) {
  for (const AttemptFailure& failure :
       {Failure(absl::UnavailableError(kTransportWords)),
        Failure(absl::InternalError(kTransportWords)), Failure(absl::UnknownError(kTransportWords)),
        Failure(absl::UnavailableError(kTransportWords), FailedLeg::kPrefill),
        Failure(absl::UnavailableError(kTransportWords), FailedLeg::kTransfer)}) {
    const absl::Status status = ToClientStatus(failure, "d:1", milliseconds(1));
    EXPECT_THAT(status, StatusIs(failure.status.code(), Not(HasSubstr("ipv4"))));
    EXPECT_THAT(status, StatusIs(failure.status.code(), HasSubstr("worker")));
  }
}

TEST(ClientStatusTest, WhatAWorkerSaysItselfIs) {
  EXPECT_EQ(
      ToClientStatus(Failure(absl::ResourceExhaustedError("queue is full"), FailedLeg::kDecode),
                     "d:1", milliseconds(1)),
      absl::ResourceExhaustedError("queue is full"));
}

TEST(ClientStatusTest, AWorkerThatCancelsIsNotTheClientsFault) {
  EXPECT_THAT(ToClientStatus(Failure(absl::CancelledError("")), "d:1", milliseconds(1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("decode worker")));
}

TEST(ClientStatusTest, ATimeoutNamesTheLimit) {
  EXPECT_THAT(ToClientStatus(Failure(absl::DeadlineExceededError("Deadline Exceeded")), "d:1",
                             milliseconds(1500)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1.5s")));
}

TEST(ClientStatusTest, WorkersThatDoNotFitEachOtherAreNotTheClientsFault) {
  AttemptFailure failure =
      Failure(absl::FailedPreconditionError("no common transport works; shm: other machine"),
              FailedLeg::kPrefill);
  failure.detail->peer.address = "p:1";
  EXPECT_EQ(ToClientStatus(failure, "d:1", milliseconds(1)),
            absl::UnavailableError("decode worker d:1 cannot work with prefill worker p:1: no "
                                   "common transport works; shm: other machine"));
}

}  // namespace
}  // namespace baton::router
