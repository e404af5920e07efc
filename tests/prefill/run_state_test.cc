#include "prefill/run_state.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::prefill {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(RunStateTest, AGrantDuringComputationOpensTheTransferAndReceivedEndsIt) {
  RunState state;
  state.OnStarted();
  EXPECT_EQ(state.OnGrant(), Action::kOpenTransfer);
  EXPECT_TRUE(state.transfer_open());
  state.OnComputed();
  EXPECT_EQ(state.phase(), Phase::kComputed);
  EXPECT_EQ(state.OnTransferEnded(absl::OkStatus()), Action::kNone);
  EXPECT_EQ(state.OnReceived(), Action::kEnd);
  EXPECT_THAT(state.end_status(), IsOk());
  EXPECT_FALSE(state.transfer_open());
}

TEST(RunStateTest, AGrantAfterComputationIsGoodToo) {
  RunState state;
  state.OnStarted();
  state.OnComputed();
  EXPECT_EQ(state.OnGrant(), Action::kOpenTransfer);
}

TEST(RunStateTest, ReceivedBeforeTheTransferSaysSoKeepsThePages) {
  RunState state;
  state.OnStarted();
  state.OnGrant();
  state.OnComputed();
  EXPECT_EQ(state.OnReceived(), Action::kEnd);
  EXPECT_TRUE(state.transfer_open());
  EXPECT_EQ(state.OnTransferEnded(absl::OkStatus()), Action::kNone);
  EXPECT_FALSE(state.transfer_open());
}

TEST(RunStateTest, BreachesOfTheProtocolEndTheAttemptByName) {
  RunState early;
  EXPECT_EQ(early.OnGrant(), Action::kEnd);
  EXPECT_THAT(early.end_status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("before Started")));

  RunState twice;
  twice.OnStarted();
  twice.OnGrant();
  EXPECT_EQ(twice.OnGrant(), Action::kEnd);
  EXPECT_THAT(twice.end_status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("twice")));

  RunState received;
  received.OnStarted();
  received.OnComputed();
  EXPECT_EQ(received.OnReceived(), Action::kEnd) << "nothing was granted";
  EXPECT_THAT(received.end_status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(RunStateTest, AFailedTransferEndsTheAttemptWithItsReason) {
  RunState state;
  state.OnStarted();
  state.OnGrant();
  EXPECT_EQ(state.OnTransferEnded(absl::UnavailableError("peer is gone")), Action::kEnd);
  EXPECT_THAT(state.end_status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(RunStateTest, CancelKeepsThePagesUntilTheTransferHasEnded) {
  RunState state;
  state.OnStarted();
  state.OnGrant();
  EXPECT_EQ(state.OnEnd(absl::CancelledError("client left")), Action::kEnd);
  EXPECT_TRUE(state.transfer_open());
  EXPECT_EQ(state.OnTransferEnded(absl::CancelledError("cancelled")), Action::kNone);
  EXPECT_FALSE(state.transfer_open());
  EXPECT_EQ(state.OnGrant(), Action::kNone);
  EXPECT_EQ(state.OnReceived(), Action::kNone);
  EXPECT_EQ(state.OnEnd(absl::OkStatus()), Action::kNone);
  EXPECT_THAT(state.end_status(), StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace baton::prefill
