#include "kvtransfer/sender.h"

#include <future>
#include <list>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/fault/fault_transport.h"
#include "kvtransfer/frame_sender.h"
#include "kvtransfer/loopback/loopback.h"
#include "tests/kvtransfer/handoff.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/inline_executor.h"
#include "tests/testing/manual_executor.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::FakeClock;
using ::baton::testing::FlashLayout;
using ::baton::testing::InlineExecutor;
using ::baton::testing::IsOk;
using ::baton::testing::ManualExecutor;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

HandoffKey Key(uint64_t request) {
  return {.attempt = {.request = {request, request}, .attempt = 1}, .sender = 11, .receiver = 22};
}

SenderOptions SmallFrames() { return {.frame_bytes = 1024, .attempt_frames = 2, .peer_frames = 3}; }

// One sender and the receiver "decode"; frames are delivered when the test says so, and pass
// through `next_fault_` first.
class SenderTest : public ::testing::Test {
 protected:
  SenderTest() { EXPECT_THAT(network_.Attach("decode", receiver_.get()), IsOk()); }

  void StepUntilIdle() {
    while (sender_.Step()) {
    }
  }
  // Delivers and steps until nothing moves any more.
  void RunToEnd() {
    do {
      StepUntilIdle();
      deliveries_.RunAll();
    } while (sender_.Step() || deliveries_.size() > 0);
  }
  void Open(Handoff& handoff) {
    ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
    ASSERT_THAT(sender_.Open(handoff.outbound()), IsOk());
  }

  // Outlives sender and receiver, which end it.
  Handoff& New(Handoff::Options options) { return handoffs_.emplace_back(std::move(options)); }

  std::list<Handoff> handoffs_;
  FakeClock clock_;
  InlineExecutor callbacks_;
  ManualExecutor deliveries_;
  LoopbackNetwork network_{&deliveries_};
  std::unique_ptr<Receiver> receiver_ = MakeReceiver(&callbacks_);
  std::function<Fault(const PostRequest&)> fault_ = [](const PostRequest&) { return Fault{}; };
  FrameSender sender_{SmallFrames(),
                      WithFaults(
                          network_.Connect(),
                          [this](const PostRequest& request) { return fault_(request); }, clock_),
                      clock_};
};

TEST_F(SenderTest, MovesEveryByteOnce) {
  for (const int64_t tokens : {1, 4, 127, 128, 255, 256, 257, 600}) {
    Handoff& handoff = New({.key = Key(static_cast<uint64_t>(tokens)), .tokens = tokens});
    Open(handoff);
    for (int64_t done = 0; done < tokens; done += 64) {
      handoff.Advance(sender_, done);
      RunToEnd();
    }
    EXPECT_FALSE(handoff.sent().has_value());
    handoff.Finish(sender_);
    RunToEnd();
    EXPECT_THAT(handoff.sent(), Optional(IsOk()));
    EXPECT_THAT(handoff.received(), Optional(IsOk()));
    EXPECT_EQ(handoff.Problem(), "") << tokens << " tokens";
  }
  const SenderStats stats = sender_.stats();
  EXPECT_EQ(stats.attempts_ok, 8u);
  EXPECT_EQ(stats.attempts_open, 0u);
  EXPECT_EQ(stats.frames_in_flight, 0u);
  EXPECT_EQ(stats.payload_bytes, receiver_->stats().payload_bytes);
  EXPECT_EQ(stats.frames_posted, stats.frames_by_verdict[0]);
}

TEST_F(SenderTest, SendsOnlyWhatTheGrantLeavesOut) {
  uint64_t attempt = 0;
  for (const Held& held : {Held{.entries = 256}, Held{.entries = 520, .state = 520},
                           Held{.entries = 512, .state = 300}}) {
    Handoff& handoff = New({.key = Key(++attempt), .held = held, .tokens = 600});
    Open(handoff);
    const auto before = static_cast<int64_t>(sender_.stats().payload_bytes);
    handoff.Finish(sender_);
    RunToEnd();
    EXPECT_THAT(handoff.received(), Optional(IsOk()));
    EXPECT_EQ(handoff.Problem(), "");
    EXPECT_EQ(static_cast<int64_t>(sender_.stats().payload_bytes) - before,
              HandoffBytes(handoff.options().layout, held, 600));
  }
}

TEST_F(SenderTest, SendsFinishedUnitsBeforeThePromptIsComputed) {
  Handoff& handoff = New({.tokens = 600});
  Open(handoff);
  handoff.Advance(sender_, 255);
  RunToEnd();
  EXPECT_EQ(sender_.stats().frames_posted, 0u);
  handoff.Advance(sender_, 512);
  RunToEnd();
  EXPECT_EQ(receiver_->received_bytes(handoff.attempt()), 2 * 128 * 8 + 2 * 128 * 3 + 4 * 8);
}

TEST_F(SenderTest, EndsAtOnceWhenThereIsNothingToSend) {
  Handoff& handoff = New({.layout = {}, .tokens = 10});
  Open(handoff);
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(IsOk()));
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
}

TEST_F(SenderTest, RefusesOpenAttemptsTwiceAndRecordsThatDoNotFit) {
  Handoff& handoff = New({});
  Open(handoff);
  EXPECT_THAT(sender_.Open(handoff.outbound()), StatusIs(absl::StatusCode::kAlreadyExists));
  Handoff& large = New({.layout = FlashLayout(), .key = Key(2)});
  EXPECT_THAT(sender_.Open(large.outbound()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("do")));
  Handoff& negative = New({.key = Key(3), .held = {.entries = -1}});
  EXPECT_THAT(sender_.Open(negative.outbound()), StatusIs(absl::StatusCode::kInvalidArgument));
  Handoff& ahead = New({.key = Key(4), .held = {.entries = 8, .state = 9}});
  EXPECT_THAT(sender_.Open(ahead.outbound()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("state of 9")));
}

TEST_F(SenderTest, AGrantBehindThePromptIsAnErrorNotACrash) {
  Handoff& handoff = New({.tokens = 300});
  OutboundSpec outbound = handoff.outbound();
  outbound.held.entries = 301;
  ASSERT_THAT(sender_.Open(std::move(outbound)), IsOk());
  handoff.Advance(sender_, 256);
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kInvalidArgument,
                                                HasSubstr("from token 301 of a prompt of 300"))));
}

TEST_F(SenderTest, CallsForEndedAttemptsHaveNoEffect) {
  Handoff& handoff = New({});
  handoff.source().Finish(300);
  sender_.Advance(handoff.attempt(), 100);
  sender_.Finish(handoff.attempt(), 300);
  sender_.Cancel(handoff.attempt(), absl::CancelledError("?"));
  EXPECT_FALSE(sender_.Step());
}

TEST_F(SenderTest, KeepsToItsWindows) {
  Handoff& first = New({.key = Key(1), .tokens = 1000});
  Handoff& second = New({.key = Key(2), .tokens = 1000});
  Open(first);
  Open(second);
  first.Finish(sender_);
  StepUntilIdle();
  EXPECT_EQ(sender_.stats().frames_in_flight, 2u);  // attempt_frames
  second.Finish(sender_);
  StepUntilIdle();
  EXPECT_EQ(sender_.stats().frames_in_flight, 3u);  // peer_frames
  RunToEnd();
  EXPECT_EQ(first.Problem(), "");
  EXPECT_EQ(second.Problem(), "");
}

TEST_F(SenderTest, AttemptsTakeTurns) {
  std::vector<uint64_t> order;
  Handoff& first = New({.key = Key(1), .tokens = 1000});
  Handoff& second = New({.key = Key(2), .tokens = 1000});
  Open(first);
  Open(second);
  fault_ = [&order](const PostRequest& request) {
    order.push_back(static_cast<uint64_t>(request.frame[24]));  // request id, low
    return Fault{};
  };
  first.Finish(sender_);
  second.Finish(sender_);
  RunToEnd();
  // The longer one's surplus aside, neither gets two frames in a row.
  int runs = 0;
  for (size_t i = 1; i < order.size(); ++i) runs += order[i] == order[i - 1] ? 1 : 0;
  EXPECT_LE(runs, 1) << ::testing::PrintToString(order);
}

TEST_F(SenderTest, AStuckPeerHoldsUpNobodyElse) {
  auto other = MakeReceiver(&callbacks_);
  ASSERT_THAT(network_.Attach("other", other.get()), IsOk());
  fault_ = [](const PostRequest& request) {
    return Fault{.kind = request.endpoint == "decode" ? Fault::Kind::kDrop : Fault::Kind::kNone};
  };
  for (uint64_t i = 0; i < 20; ++i) {
    Handoff& stuck = New({.key = Key(100 + i), .tokens = 1000});
    Open(stuck);
    stuck.Finish(sender_);
  }
  StepUntilIdle();
  Handoff& healthy = New({.key = Key(1), .tokens = 1000, .endpoint = "other"});
  ASSERT_THAT(other->Expect(healthy.landing()), IsOk());
  ASSERT_THAT(sender_.Open(healthy.outbound()), IsOk());
  healthy.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(healthy.sent(), Optional(IsOk()));
  EXPECT_THAT(healthy.received(), Optional(IsOk()));
  for (Handoff& handoff : handoffs_) sender_.Cancel(handoff.attempt(), absl::CancelledError("?"));
  clock_.Advance(std::chrono::seconds(6));
  RunToEnd();
  EXPECT_EQ(sender_.stats().attempts_open, 0u);
  network_.Detach("other");
}

TEST_F(SenderTest, ResendsCorruptFrames) {
  int posts = 0;
  fault_ = [&posts](const PostRequest&) {
    // Every third, at moving places.
    ++posts;
    return Fault{.kind = posts % 3 == 0 ? Fault::Kind::kCorrupt : Fault::Kind::kNone,
                 .bit = static_cast<uint64_t>(posts) * 7919};
  };
  Handoff& handoff = New({.tokens = 2000});
  Open(handoff);
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(IsOk()));
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
  EXPECT_EQ(handoff.Problem(), "");
  EXPECT_GT(sender_.stats().frames_resent, 3u);
  EXPECT_EQ(sender_.stats().frames_resent, static_cast<uint64_t>(posts / 3));
}

TEST_F(SenderTest, GivesUpOnAFrameThatStaysCorrupt) {
  fault_ = [](const PostRequest&) { return Fault{.kind = Fault::Kind::kCorrupt, .bit = 900}; };
  Handoff& handoff = New({});
  Open(handoff);
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(
      handoff.sent(),
      Optional(StatusIs(absl::StatusCode::kDataLoss,
                        AllOf(HasSubstr("corrupt"), HasSubstr("crc32c"), HasSubstr("4 times")))));
  EXPECT_EQ(handoff.sink().records(), 0u);
}

TEST_F(SenderTest, AStaleAttemptIsAborted) {
  Handoff& handoff = New({});
  ASSERT_THAT(sender_.Open(handoff.outbound()), IsOk());  // never expected
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kAborted, HasSubstr("stale"))));
}

TEST_F(SenderTest, ARejectedFrameFailsTheAttempt) {
  Handoff& granted = New({.tokens = 300});
  Handoff& longer = New({.tokens = 400});
  ASSERT_THAT(receiver_->Expect(granted.landing()), IsOk());
  ASSERT_THAT(sender_.Open(longer.outbound()), IsOk());
  longer.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(longer.sent(), Optional(StatusIs(absl::StatusCode::kFailedPrecondition,
                                               HasSubstr("tokens: 400, granted 300"))));
  EXPECT_EQ(granted.sink().records(), 0u);
}

TEST_F(SenderTest, APeerThatIsNotThereFailsTheAttemptAtOnce) {
  Handoff& handoff = New({.endpoint = "nobody"});
  ASSERT_THAT(sender_.Open(handoff.outbound()), IsOk());
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.sent(),
              Optional(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nobody"))));
}

TEST_F(SenderTest, ADyingPeerFailsItsAttemptsWithoutADeadline) {
  Handoff& handoff = New({.tokens = 1000});
  Open(handoff);
  handoff.Finish(sender_);
  StepUntilIdle();
  network_.Detach("decode");
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

TEST_F(SenderTest, ARestartedPeerIsNotMistakenForTheOldOne) {
  Handoff& handoff = New({.tokens = 1000});
  Open(handoff);
  handoff.Advance(sender_, 256);
  RunToEnd();
  network_.Detach("decode");
  auto restarted = MakeReceiver(&callbacks_);
  ASSERT_THAT(network_.Attach("decode", restarted.get()), IsOk());
  Handoff same_attempt(
      {.key = {.attempt = handoff.attempt(), .sender = 11, .receiver = 23}, .tokens = 1000});
  ASSERT_THAT(restarted->Expect(same_attempt.landing()), IsOk());
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_EQ(same_attempt.sink().records(), 0u);
  network_.Detach("decode");
  restarted.reset();
}

TEST_F(SenderTest, CancelWaitsForWhatIsInFlightAndReadsNothingMore) {
  Handoff& handoff = New({.tokens = 1000});
  Open(handoff);
  handoff.Finish(sender_);
  StepUntilIdle();
  const uint64_t posted = sender_.stats().frames_posted;
  sender_.Cancel(handoff.attempt(), absl::CancelledError("client gone"));
  sender_.Cancel(handoff.attempt(), absl::InternalError("again"));
  StepUntilIdle();
  EXPECT_FALSE(handoff.sent().has_value()) << "ended with frames in flight";
  RunToEnd();
  EXPECT_THAT(handoff.sent(),
              Optional(StatusIs(absl::StatusCode::kCancelled, HasSubstr("client gone"))));
  EXPECT_EQ(sender_.stats().frames_posted, posted);
}

TEST_F(SenderTest, SilenceIsAnErrorAfterTheProgressTimeout) {
  fault_ = [](const PostRequest&) { return Fault{.kind = Fault::Kind::kDrop}; };
  Handoff& handoff = New({});
  Open(handoff);
  handoff.Finish(sender_);
  StepUntilIdle();
  clock_.Advance(std::chrono::milliseconds(4999));
  StepUntilIdle();
  EXPECT_FALSE(handoff.sent().has_value());
  clock_.Advance(std::chrono::milliseconds(1));
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                                AllOf(HasSubstr("decode"), HasSubstr("5 s")))));
}

TEST_F(SenderTest, WaitingForThePromptIsNotSilence) {
  Handoff& handoff = New({.tokens = 600});
  Open(handoff);
  handoff.Advance(sender_, 256);
  RunToEnd();
  clock_.Advance(std::chrono::hours(1));
  RunToEnd();
  EXPECT_FALSE(handoff.sent().has_value());
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(IsOk()));
}

TEST_F(SenderTest, EveryAnswerExtendsTheDeadline) {
  Handoff& handoff = New({.tokens = 1000});
  Open(handoff);
  handoff.Finish(sender_);
  StepUntilIdle();
  while (deliveries_.size() > 0) {
    clock_.Advance(std::chrono::seconds(4));
    deliveries_.RunAt(0);
    StepUntilIdle();
  }
  EXPECT_THAT(handoff.sent(), Optional(IsOk()));
}

TEST_F(SenderTest, ReceiverMaySucceedWhenOnlyTheAnswersAreLost) {
  fault_ = [](const PostRequest&) { return Fault{.kind = Fault::Kind::kDropAnswer}; };
  Handoff& handoff = New({.tokens = 3});
  Open(handoff);
  handoff.Finish(sender_);
  RunToEnd();
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
  EXPECT_EQ(handoff.Problem(), "");
  EXPECT_FALSE(handoff.sent().has_value());
  clock_.Advance(std::chrono::seconds(5));
  RunToEnd();
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kDeadlineExceeded)));
}

TEST_F(SenderTest, ShutdownEndsWhatIsOpenAndRefusesMore) {
  fault_ = [](const PostRequest&) { return Fault{.kind = Fault::Kind::kDrop}; };
  Handoff& handoff = New({});
  Open(handoff);
  handoff.Finish(sender_);
  StepUntilIdle();
  sender_.BeginShutdown();
  RunToEnd();
  EXPECT_TRUE(sender_.ShutDown());
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kCancelled)));
  Handoff& late = New({.key = Key(2)});
  EXPECT_THAT(sender_.Open(late.outbound()), StatusIs(absl::StatusCode::kUnavailable));
}

// With its own thread and a thread that delivers.
TEST(ThreadedSenderTest, MovesManyHandoffsAtOnce) {
  TransferThread callbacks;
  TransferThread deliveries;
  LoopbackNetwork network(&deliveries);
  auto receiver = MakeReceiver(&callbacks);
  ASSERT_THAT(network.Attach("decode", receiver.get()), IsOk());
  auto sender = MakeSender({}, network.Connect());
  constexpr int kHandoffs = 8;
  std::list<Handoff> handoffs;
  std::vector<std::future<void>> ends;
  for (int i = 0; i < kHandoffs; ++i) {
    handoffs.emplace_back(Handoff::Options{.key = Key(static_cast<uint64_t>(i)),
                                           .tokens = 300 + 200 * i,
                                           .seed = static_cast<uint64_t>(i)});
    Handoff& handoff = handoffs.back();
    const auto ended = [&ends](std::function<void(absl::Status)> inner) {
      auto promise = std::make_shared<std::promise<void>>();
      ends.push_back(promise->get_future());
      return [inner = std::move(inner), promise](absl::Status status) {
        inner(std::move(status));
        promise->set_value();
      };
    };
    LandingSpec landing = handoff.landing();
    landing.on_end = ended(std::move(landing.on_end));
    ASSERT_THAT(receiver->Expect(std::move(landing)), IsOk());
    OutboundSpec outbound = handoff.outbound();
    outbound.on_end = ended(std::move(outbound.on_end));
    ASSERT_THAT(sender->Open(std::move(outbound)), IsOk());
  }
  for (int64_t tokens = 128; tokens < 300; tokens += 128) {
    for (Handoff& handoff : handoffs) handoff.Advance(*sender, tokens);
  }
  for (Handoff& handoff : handoffs) handoff.Finish(*sender);
  for (auto& end : ends) end.wait();
  for (Handoff& handoff : handoffs) {
    EXPECT_THAT(handoff.sent(), Optional(IsOk()));
    EXPECT_THAT(handoff.received(), Optional(IsOk()));
    EXPECT_EQ(handoff.Problem(), "");
  }
}

TEST(ThreadedSenderTest, DestructionEndsWhatIsOpenEvenAtAStuckPeer) {
  ManualExecutor never;
  LoopbackNetwork network(&never);
  InlineExecutor callbacks;
  auto receiver = MakeReceiver(&callbacks);
  ASSERT_THAT(network.Attach("decode", receiver.get()), IsOk());
  Handoff handoff;
  auto sender = MakeSender({}, network.Connect());
  ASSERT_THAT(sender->Open(handoff.outbound()), IsOk());
  handoff.Finish(*sender);
  sender.reset();
  EXPECT_THAT(handoff.sent(), Optional(StatusIs(absl::StatusCode::kCancelled)));
  never.RunAll();  // deliveries that were cancelled touch nothing
  EXPECT_EQ(handoff.sink().records(), 0u);
}

}  // namespace
}  // namespace baton::kvtransfer
