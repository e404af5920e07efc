#include "decode/request_state.h"

#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::decode {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

const absl::Status kGone = absl::UnavailableError("peer is gone");
const absl::Status kCorrupt = absl::DataLossError("checksum");

// A request brought to a phase by the shortest way.
RequestState In(Phase phase) {
  RequestState state(phase == Phase::kLocal ? 0 : 2);
  if (phase == Phase::kQueued) return state;
  state.OnDispatch(0);
  if (phase == Phase::kPrefilling || phase == Phase::kLocal) return state;
  state.OnAccepted();
  state.OnStarted();
  state.OnGranted();
  if (phase == Phase::kLanding) return state;
  state.OnFinished();
  state.OnLanded(absl::OkStatus());
  if (phase == Phase::kEnded) state.OnEnd(absl::OkStatus());
  return state;
}

TEST(RequestStateTest, ARemotePrefillGoesFromCandidateToRunning) {
  RequestState state(2);
  EXPECT_EQ(state.OnDispatch(0), Action::kAskPeer);
  state.OnAccepted();
  EXPECT_EQ(state.OnStarted(), Action::kAskPages);
  EXPECT_EQ(state.OnStarted(), Action::kNone) << "duplicate";
  EXPECT_EQ(state.OnGranted(), Action::kNone);
  EXPECT_TRUE(state.landing_open());
  EXPECT_EQ(state.OnFinished(), Action::kNone);
  EXPECT_EQ(state.OnLanded(absl::OkStatus()), Action::kAdopt);
  EXPECT_FALSE(state.landing_open());
  EXPECT_EQ(state.phase(), Phase::kRunning);
  EXPECT_EQ(state.OnStreamEnded(absl::OkStatus()), Action::kNone);
  EXPECT_EQ(state.OnEnd(absl::OkStatus()), Action::kEnd);
  EXPECT_THAT(state.end_status(), IsOk());
}

TEST(RequestStateTest, WithoutCandidatesThePromptIsComputedHere) {
  RequestState state(0);
  EXPECT_EQ(state.OnDispatch(0), Action::kAskPages);
  EXPECT_EQ(state.phase(), Phase::kLocal);
  state.OnLocalPrefilled();
  EXPECT_EQ(state.phase(), Phase::kRunning);
}

TEST(RequestStateTest, BytesMayLandBeforeTheFirstTokenIsKnown) {
  RequestState state = In(Phase::kLanding);
  EXPECT_EQ(state.OnLanded(absl::OkStatus()), Action::kNone);
  EXPECT_EQ(state.OnFinished(), Action::kAdopt);
}

TEST(RequestStateTest, AFinishBeforeTheGrantIsRemembered) {
  RequestState state(1);
  state.OnDispatch(0);
  state.OnAccepted();
  EXPECT_EQ(state.OnFinished(), Action::kAskPages) << "Started was overtaken";
  state.OnGranted();
  EXPECT_EQ(state.OnLanded(absl::OkStatus()), Action::kAdopt);
}

TEST(RequestStateTest, PagesAreAskedForWhenItIsKnownWhoAccepted) {
  RequestState state = In(Phase::kPrefilling);
  EXPECT_EQ(state.OnStarted(), Action::kNone) << "Accepted was overtaken";
  EXPECT_EQ(state.OnAccepted(), Action::kAskPages);
  EXPECT_EQ(state.OnAccepted(), Action::kNone) << "duplicate";
}

TEST(RequestStateTest, WhatACandidateSaidThatDidNotAcceptIsForgotten) {
  RequestState state = In(Phase::kPrefilling);
  EXPECT_EQ(state.OnFinished(), Action::kNone);
  EXPECT_EQ(state.OnRefused(1, kGone), Action::kAskPeer);
  EXPECT_EQ(state.OnAccepted(), Action::kNone);
  EXPECT_EQ(state.OnStarted(), Action::kAskPages);
  state.OnGranted();
  EXPECT_EQ(state.OnLanded(absl::OkStatus()), Action::kNone) << "the first token is another's";
}

TEST(RequestStateTest, ARefusalMovesOnToTheNextCandidateAndEndsAfterTheLast) {
  RequestState state(3);
  EXPECT_EQ(state.OnDispatch(1), Action::kAskPeer);
  EXPECT_EQ(state.candidate(), 1u);
  EXPECT_EQ(state.OnRefused(2, kGone), Action::kAskPeer);
  EXPECT_EQ(state.candidate(), 2u);
  EXPECT_EQ(state.OnRefused(3, kGone), Action::kEnd);
  EXPECT_THAT(state.end_status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(RequestStateTest, AfterAcceptedAFailureIsFinal) {
  RequestState state = In(Phase::kPrefilling);
  state.OnAccepted();
  EXPECT_EQ(state.OnRefused(1, kGone), Action::kNone);
  EXPECT_EQ(state.OnStreamEnded(kGone), Action::kEnd);
}

TEST(RequestStateTest, WhatAHandoffEndsWithIsNeverTheRequestsFault) {
  for (const absl::Status& why :
       {absl::InvalidArgumentError("Open came twice"), absl::OutOfRangeError("token 9 of 8")}) {
    RequestState refused = In(Phase::kPrefilling);
    EXPECT_EQ(refused.OnRefused(2, why), Action::kEnd);
    EXPECT_EQ(refused.end_status(), why) << "the request was looked at";

    RequestState accepted = In(Phase::kPrefilling);
    accepted.OnAccepted();
    EXPECT_EQ(accepted.OnStreamEnded(why), Action::kEnd);
    EXPECT_THAT(accepted.end_status(), StatusIs(absl::StatusCode::kFailedPrecondition));

    RequestState landing = In(Phase::kLanding);
    EXPECT_EQ(landing.OnLanded(why), Action::kEnd);
    EXPECT_THAT(landing.end_status(), StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(landing.end_leg(), Leg::kTransfer);
  }
}

TEST(RequestStateTest, APrefillWorkerThatWaitedInVainForPagesIsNotAtFault) {
  const absl::Status no_pages = absl::ResourceExhaustedError("no pages to grant in 60 s");
  RequestState waiting = In(Phase::kPrefilling);
  waiting.OnAccepted();
  EXPECT_EQ(waiting.OnStarted(), Action::kAskPages);
  EXPECT_EQ(waiting.OnStreamEnded(no_pages), Action::kEnd);
  EXPECT_EQ(waiting.end_leg(), Leg::kDecode);
  EXPECT_THAT(waiting.end_status(), StatusIs(absl::StatusCode::kResourceExhausted));

  RequestState crossed = In(Phase::kLanding);  // the grant was on its way
  EXPECT_EQ(crossed.OnStreamEnded(no_pages), Action::kFence);
  EXPECT_EQ(crossed.OnLanded(absl::CancelledError("fenced")), Action::kEnd);
  EXPECT_EQ(crossed.end_leg(), Leg::kTransfer);
  EXPECT_THAT(crossed.end_status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("granted, but")));

  RequestState queued = In(Phase::kPrefilling);  // accepted, and then the worker itself is short
  queued.OnAccepted();
  EXPECT_EQ(queued.OnStreamEnded(no_pages), Action::kEnd);
  EXPECT_EQ(queued.end_leg(), Leg::kPrefill);
}

TEST(RequestStateTest, AStreamThatEndsEarlyWithOkIsAFailure) {
  RequestState state = In(Phase::kPrefilling);
  state.OnAccepted();
  EXPECT_EQ(state.OnStreamEnded(absl::OkStatus()), Action::kEnd);
  EXPECT_THAT(state.end_status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("before it was complete")));
}

TEST(RequestStateTest, APrefillWorkersOwnDeadlineIsNotTheClients) {
  RequestState state = In(Phase::kPrefilling);
  state.OnAccepted();
  EXPECT_EQ(state.OnStreamEnded(absl::DeadlineExceededError("no answer for 5 s")), Action::kEnd);
  EXPECT_THAT(state.end_status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no answer for 5 s")));
}

TEST(RequestStateTest, ADeadStreamIsSuccessOnceEveryByteAndTheFirstTokenAreThere) {
  RequestState state = In(Phase::kLanding);
  state.OnFinished();
  EXPECT_EQ(state.OnStreamEnded(kGone), Action::kFence);
  EXPECT_EQ(state.phase(), Phase::kLanding);
  EXPECT_EQ(state.OnLanded(absl::OkStatus()), Action::kAdopt);
}

TEST(RequestStateTest, ADeadStreamWithBytesMissingEndsWithTheStreamsStatus) {
  RequestState state = In(Phase::kLanding);
  state.OnFinished();
  EXPECT_EQ(state.OnStreamEnded(kGone), Action::kFence);
  EXPECT_EQ(state.OnLanded(absl::CancelledError("fenced")), Action::kEnd);
  EXPECT_EQ(state.end_leg(), Leg::kPrefill);
  EXPECT_THAT(state.end_status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(RequestStateTest, AllBytesWithoutAFirstTokenAreAFailure) {
  RequestState before = In(Phase::kLanding);
  EXPECT_EQ(before.OnLanded(absl::OkStatus()), Action::kNone);
  EXPECT_EQ(before.OnStreamEnded(kGone), Action::kEnd);

  RequestState after = In(Phase::kLanding);
  EXPECT_EQ(after.OnStreamEnded(kGone), Action::kFence);
  EXPECT_EQ(after.OnLanded(absl::OkStatus()), Action::kEnd);
  EXPECT_THAT(after.end_status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(RequestStateTest, AFailedLandingEndsTheRequestWithItsReason) {
  RequestState state = In(Phase::kLanding);
  EXPECT_EQ(state.OnLanded(kCorrupt), Action::kEnd);
  EXPECT_EQ(state.end_leg(), Leg::kTransfer);
  EXPECT_THAT(state.end_status(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(RequestStateTest, EveryPhaseEndsOnceAndKeepsTheFirstReason) {
  for (const Phase phase :
       {Phase::kQueued, Phase::kPrefilling, Phase::kLanding, Phase::kLocal, Phase::kRunning}) {
    RequestState state = In(phase);
    ASSERT_EQ(state.phase(), phase);
    EXPECT_EQ(state.OnEnd(absl::CancelledError("client left")), Action::kEnd);
    EXPECT_EQ(state.phase(), Phase::kEnded);
    EXPECT_EQ(state.landing_open(), phase == Phase::kLanding) << "pages stay in quarantine";
    EXPECT_EQ(state.OnEnd(kGone), Action::kNone);
    EXPECT_THAT(state.end_status(), StatusIs(absl::StatusCode::kCancelled));
  }
}

TEST(RequestStateTest, LateEventsOfAnEndedRequestDoNothing) {
  RequestState state = In(Phase::kEnded);
  const std::vector<std::function<Action()>> events = {
      [&] { return state.OnDispatch(0); },        [&] { return state.OnRefused(1, kGone); },
      [&] { return state.OnStarted(); },          [&] { return state.OnFinished(); },
      [&] { return state.OnStreamEnded(kGone); }, [&] { return state.OnLocalPrefilled(); },
  };
  for (const auto& event : events) EXPECT_EQ(event(), Action::kNone);
  EXPECT_EQ(state.phase(), Phase::kEnded);
}

TEST(RequestStateTest, TheLandingOfACancelledRequestOnlyLiftsTheQuarantine) {
  RequestState state = In(Phase::kLanding);
  state.OnEnd(absl::CancelledError("client left"));
  EXPECT_EQ(state.OnLanded(absl::OkStatus()), Action::kNone);
  EXPECT_FALSE(state.landing_open());
  EXPECT_EQ(state.phase(), Phase::kEnded);
}

TEST(RequestStateTest, APreemptedRequestWaitsForPagesAndIsComputedHere) {
  RequestState state = In(Phase::kRunning);
  EXPECT_EQ(state.OnPreempted(), Action::kAskPages);
  EXPECT_EQ(state.phase(), Phase::kLocal);
  EXPECT_EQ(state.OnStreamEnded(kGone), Action::kNone);
  state.OnLocalPrefilled();
  EXPECT_EQ(state.phase(), Phase::kRunning);
}

}  // namespace
}  // namespace baton::decode
