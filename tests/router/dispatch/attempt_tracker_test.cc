#include "router/dispatch/attempt_tracker.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Shun = AttemptTracker::Shun;

const WorkerId kDecode{"decode:1", 11};
const WorkerId kPrefill{"prefill:1", 22};

AttemptFailure Failure(absl::StatusCode code) {
  return {.status = absl::Status(code, "failed"), .detail = std::nullopt};
}
AttemptFailure Failure(absl::StatusCode code, FailedLeg leg, const WorkerId& peer) {
  AttemptFailure failure = Failure(code);
  failure.detail = AttemptFailure::Detail{.leg = leg, .peer = peer};
  return failure;
}

struct Case {
  absl::StatusCode code;
  bool detailed;  // the worker says itself what went wrong
  bool retry;
  RetryReason reason;
  bool cool_down;
};

class RetryRules : public ::testing::TestWithParam<Case> {};

TEST_P(RetryRules, ApplyToTheFirstAttempt) {
  const Case& c = GetParam();
  AttemptTracker tracker(2);
  EXPECT_EQ(tracker.Begin(kDecode), 1u);
  const AttemptTracker::Decision decision = tracker.OnFailure(
      c.detailed ? Failure(c.code, FailedLeg::kDecode, kDecode) : Failure(c.code));
  EXPECT_EQ(decision.retry, c.retry);
  EXPECT_EQ(decision.cool_down, c.cool_down);
  if (c.retry) {
    EXPECT_EQ(decision.reason, c.reason);
    EXPECT_EQ(decision.culprit, kDecode);
  } else {
    EXPECT_EQ(decision.culprit.address, "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codes, RetryRules,
    ::testing::Values(
        Case{absl::StatusCode::kUnavailable, false, true, RetryReason::kCrash, true},
        Case{absl::StatusCode::kUnavailable, true, true, RetryReason::kBusy, false},
        // The transport's words for a stream that broke, but a worker's own verdict if it has one.
        Case{absl::StatusCode::kInternal, false, true, RetryReason::kCrash, true},
        Case{absl::StatusCode::kInternal, true, false, RetryReason::kCrash, false},
        Case{absl::StatusCode::kUnknown, false, true, RetryReason::kCrash, true},
        Case{absl::StatusCode::kUnknown, true, false, RetryReason::kCrash, false},
        Case{absl::StatusCode::kResourceExhausted, true, true, RetryReason::kBusy, false},
        Case{absl::StatusCode::kAborted, true, true, RetryReason::kTransient, false},
        Case{absl::StatusCode::kDataLoss, true, true, RetryReason::kTransient, false},
        Case{absl::StatusCode::kInvalidArgument, true, false, RetryReason::kCrash, false},
        Case{absl::StatusCode::kDeadlineExceeded, false, false, RetryReason::kCrash, false},
        Case{absl::StatusCode::kCancelled, false, true, RetryReason::kBusy, false},
        Case{absl::StatusCode::kFailedPrecondition, true, false, RetryReason::kCrash, false},
        Case{absl::StatusCode::kOutOfRange, true, false, RetryReason::kCrash, false},
        Case{absl::StatusCode::kUnimplemented, false, false, RetryReason::kCrash, false}));

TEST(AttemptTrackerTest, ARollingRestartIsNoRowOfCrashes) {
  AttemptTracker tracker(4);
  for (int i = 0; i < 3; ++i) {
    tracker.Begin(kDecode);
    EXPECT_TRUE(
        tracker.OnFailure(Failure(absl::StatusCode::kUnavailable, FailedLeg::kDecode, kDecode))
            .retry);
  }
}

TEST(AttemptTrackerTest, PrefillWorkersThatDrainAreNoCrashes) {
  AttemptTracker tracker(4);
  for (int i = 0; i < 3; ++i) {
    tracker.Begin(kDecode);
    const AttemptTracker::Decision decision = tracker.OnFailure(
        Failure(absl::StatusCode::kResourceExhausted, FailedLeg::kPrefill, kPrefill));
    EXPECT_TRUE(decision.retry);
    EXPECT_FALSE(decision.cool_down);
  }
}

TEST(AttemptTrackerTest, BlamesTheWorkerThatTheDetailNames) {
  AttemptTracker tracker(2);
  tracker.Begin(kDecode);
  const AttemptTracker::Decision decision =
      tracker.OnFailure(Failure(absl::StatusCode::kUnavailable, FailedLeg::kPrefill, kPrefill));
  EXPECT_TRUE(decision.retry);
  EXPECT_EQ(decision.leg, FailedLeg::kPrefill);
  EXPECT_EQ(decision.culprit, kPrefill);
  EXPECT_THAT(tracker.Avoid(Shun::kAllInvolved), ElementsAre(kPrefill));
}

TEST(AttemptTrackerTest, BlamesTheDecodeWorkerWhenTheDetailNamesNobody) {
  AttemptTracker tracker(2);
  tracker.Begin(kDecode);
  const AttemptTracker::Decision decision =
      tracker.OnFailure(Failure(absl::StatusCode::kAborted, FailedLeg::kTransfer, {}));
  EXPECT_EQ(decision.culprit, kDecode);
  EXPECT_EQ(decision.leg, FailedLeg::kTransfer);
}

// A frame that was rejected, records that do not fit, a hand-off that ended too early: what one of
// two workers says of the other, who may serve somebody else well.
TEST(AttemptTrackerTest, WhatAPairMakesOfAHandOffIsTriedWithAnother) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kFailedPrecondition, absl::StatusCode::kInternal,
        absl::StatusCode::kUnknown, absl::StatusCode::kDataLoss}) {
    for (const FailedLeg leg : {FailedLeg::kPrefill, FailedLeg::kTransfer}) {
      AttemptTracker tracker(2);
      tracker.Begin(kDecode);
      const AttemptTracker::Decision decision = tracker.OnFailure(Failure(code, leg, kPrefill));
      EXPECT_TRUE(decision.retry);
      EXPECT_EQ(decision.reason, RetryReason::kTransient);
      EXPECT_FALSE(decision.cool_down);
      EXPECT_THAT(tracker.Avoid(Shun::kAllInvolved), ElementsAre(kPrefill, kDecode));
      EXPECT_THAT(tracker.Avoid(Shun::kCulprits), ElementsAre(kPrefill));
    }
  }
}

TEST(AttemptTrackerTest, NothingIsRetriedOnceTheClientHasSeenSomething) {
  AttemptTracker tracker(5);
  tracker.Begin(kDecode);
  tracker.Commit();
  const auto decision = tracker.OnFailure(Failure(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(decision.retry);
  EXPECT_EQ(decision.culprit, kDecode);  // spared by others all the same
  EXPECT_TRUE(decision.cool_down);
}

TEST(AttemptTrackerTest, StopsAtTheConfiguredNumberOfAttempts) {
  AttemptTracker tracker(3);
  EXPECT_EQ(tracker.Begin(kDecode), 1u);
  EXPECT_TRUE(tracker.OnFailure(Failure(absl::StatusCode::kResourceExhausted)).retry);
  EXPECT_EQ(tracker.Begin({"decode:2", 1}), 2u);
  EXPECT_TRUE(tracker.OnFailure(Failure(absl::StatusCode::kResourceExhausted)).retry);
  EXPECT_EQ(tracker.Begin({"decode:3", 1}), 3u);
  EXPECT_FALSE(tracker.OnFailure(Failure(absl::StatusCode::kResourceExhausted)).retry);
}

TEST(AttemptTrackerTest, OneAttemptMeansNoRetry) {
  AttemptTracker tracker(1);
  tracker.Begin(kDecode);
  EXPECT_FALSE(tracker.OnFailure(Failure(absl::StatusCode::kUnavailable)).retry);
}

TEST(AttemptTrackerTest, ARequestThatKillsTwoWorkersIsNotGivenAThird) {
  AttemptTracker tracker(10);
  tracker.Begin(kDecode);
  EXPECT_TRUE(tracker.OnFailure(Failure(absl::StatusCode::kUnavailable)).retry);
  tracker.Begin({"decode:2", 1});
  EXPECT_FALSE(tracker.OnFailure(Failure(absl::StatusCode::kUnavailable)).retry);
}

TEST(AttemptTrackerTest, OnlyDisturbedHandoffsAreForgivenWhenNobodyElseIsLeft) {
  AttemptTracker tracker(10);
  tracker.Begin(kDecode);
  tracker.OnFailure(Failure(absl::StatusCode::kAborted, FailedLeg::kTransfer, kPrefill));
  tracker.Begin(kDecode);
  EXPECT_THAT(tracker.Avoid(Shun::kCulprits), ElementsAre(kPrefill));
  EXPECT_THAT(tracker.Avoid(Shun::kHopeless), IsEmpty());
  tracker.OnFailure(Failure(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(tracker.Avoid(Shun::kHopeless), ElementsAre(kDecode));
}

}  // namespace
}  // namespace baton::router
