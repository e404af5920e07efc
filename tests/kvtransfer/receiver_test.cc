#include "kvtransfer/receiver.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/host_frame.h"
#include "kvtransfer/send_plan.h"
#include "tests/kvtransfer/handoff.h"
#include "tests/testing/manual_executor.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::ManualExecutor;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Optional;

// All frames of a finished hand-off, in order.
std::vector<std::vector<std::byte>> Frames(Handoff& handoff, size_t frame_bytes = 2048) {
  const Handoff::Options& options = handoff.options();
  handoff.source().Finish(options.tokens);
  SendPlan plan(options.layout, options.held, 256);
  plan.Finish(options.tokens);
  std::vector<std::vector<std::byte>> frames;
  while (plan.has_frame()) {
    const FramePlan frame = plan.NextFrame(frame_bytes);
    const FrameHeader header = {.kind = frame.kind,
                                .key = options.key,
                                .sequence = frames.size(),
                                .first_token = static_cast<uint64_t>(options.held.entries),
                                .tokens = static_cast<uint64_t>(frame.tokens)};
    std::vector<std::byte> bytes(FrameBytes(frame.segments));
    EncodeFrame(header, frame.segments, handoff.source(), bytes);
    frames.push_back(std::move(bytes));
  }
  return frames;
}

class ReceiverTest : public ::testing::Test {
 protected:
  FrameVerdict Deliver(std::span<const std::byte> frame) {
    return receiver_->OnFrame(frame, &detail_);
  }

  ManualExecutor callbacks_;
  std::unique_ptr<Receiver> receiver_ = MakeReceiver(&callbacks_);
  std::string detail_;
};

TEST_F(ReceiverTest, EndsOnceWhenEveryRecordIsThere) {
  for (const int64_t tokens : {1, 3, 4, 127, 128, 129, 256, 300, 515}) {
    Handoff handoff({.tokens = tokens});
    ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
    const auto frames = Frames(handoff);
    for (const auto& frame : frames) {
      EXPECT_EQ(callbacks_.size(), 0u);
      EXPECT_EQ(Deliver(frame), FrameVerdict::kAccepted) << detail_;
    }
    EXPECT_FALSE(handoff.received().has_value()) << "called back on the caller's thread";
    callbacks_.RunAll();
    EXPECT_THAT(handoff.received(), Optional(IsOk()));
    EXPECT_EQ(handoff.Problem(), "") << tokens << " tokens";
  }
  EXPECT_EQ(receiver_->stats().landings_ok, 9u);
  EXPECT_EQ(receiver_->stats().landings_open, 0u);
}

TEST_F(ReceiverTest, AcceptsFramesInAnyOrderAndTwice) {
  Handoff handoff({.tokens = 500});
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  const auto frames = Frames(handoff, 512);
  ASSERT_GT(frames.size(), 4u);
  for (size_t i = frames.size(); i-- > 1;) {
    EXPECT_EQ(Deliver(frames[i]), FrameVerdict::kAccepted);
    EXPECT_EQ(Deliver(frames[i]), FrameVerdict::kAccepted);
  }
  EXPECT_EQ(receiver_->stats().duplicate_frames, frames.size() - 1);
  EXPECT_EQ(Deliver(frames[0]), FrameVerdict::kAccepted);
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
  EXPECT_EQ(handoff.Problem(), "");
  EXPECT_EQ(static_cast<int64_t>(receiver_->stats().payload_bytes),
            HandoffBytes(handoff.options().layout, 500));
  EXPECT_EQ(handoff.sink().writes(), handoff.sink().records()) << "written twice";
}

TEST_F(ReceiverTest, CountsBytesOfOpenAttempts) {
  Handoff handoff;
  EXPECT_EQ(receiver_->received_bytes(handoff.attempt()), 0);
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  const auto frames = Frames(handoff);
  Deliver(frames[0]);
  EXPECT_GT(receiver_->received_bytes(handoff.attempt()), 0);
  EXPECT_LT(receiver_->received_bytes(handoff.attempt()), 2048);
  for (const auto& frame : frames) Deliver(frame);
  EXPECT_EQ(receiver_->received_bytes(handoff.attempt()), 0);
}

TEST_F(ReceiverTest, RefusesToExpectAnOpenAttemptTwice) {
  Handoff handoff;
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  EXPECT_THAT(receiver_->Expect(handoff.landing()), StatusIs(absl::StatusCode::kAlreadyExists));
  receiver_->Abort(handoff.attempt(), absl::CancelledError("gone"));
  callbacks_.RunAll();
  Handoff again({.key = {.attempt = handoff.attempt(), .sender = 12, .receiver = 22}});
  EXPECT_THAT(receiver_->Expect(again.landing()), IsOk());
  EXPECT_EQ(Deliver(Frames(handoff)[0]), FrameVerdict::kStale) << "of the earlier sender";
}

TEST_F(ReceiverTest, RefusesGrantsThatNobodyCanHold) {
  Handoff handoff;
  for (const Held& held : {Held{.entries = 301}, Held{.entries = -1}, Held{.state = 1},
                           Held{.entries = 8, .state = -1}}) {
    LandingSpec spec = handoff.landing();
    spec.held = held;
    EXPECT_THAT(receiver_->Expect(std::move(spec)), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST_F(ReceiverTest, EndsAtOnceWhenNothingIsMissing) {
  Handoff handoff({.layout = {{{CacheStream::kCsaKv, RecordFormat::kBf16, 2, 8}}},
                   .held = {.entries = 300},
                   .tokens = 300});
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
}

TEST_F(ReceiverTest, DropsFramesOfUnknownAndEndedAttempts) {
  Handoff handoff;
  const auto frames = Frames(handoff);
  EXPECT_EQ(Deliver(frames[0]), FrameVerdict::kStale);
  EXPECT_THAT(detail_, HasSubstr("not expected"));
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  for (const auto& frame : frames) Deliver(frame);
  EXPECT_EQ(Deliver(frames[0]), FrameVerdict::kStale);
  callbacks_.RunAll();
  EXPECT_EQ(Deliver(frames[0]), FrameVerdict::kStale);
  EXPECT_EQ(receiver_->stats().frames_by_verdict[static_cast<int>(FrameVerdict::kStale)], 3u);
}

TEST_F(ReceiverTest, DropsFramesOfOtherAttemptsAndIncarnations) {
  const HandoffKey key = Handoff::Options{}.key;
  HandoffKey later = key;
  later.attempt.attempt = 2;
  HandoffKey restarted_sender = key;
  restarted_sender.sender = 12;
  HandoffKey restarted_receiver = key;
  restarted_receiver.receiver = 23;
  Handoff expected;
  ASSERT_THAT(receiver_->Expect(expected.landing()), IsOk());
  for (const HandoffKey& other : {later, restarted_sender, restarted_receiver}) {
    Handoff foreign({.key = other});
    for (const auto& frame : Frames(foreign)) EXPECT_EQ(Deliver(frame), FrameVerdict::kStale);
  }
  EXPECT_EQ(expected.sink().records(), 0u);
  EXPECT_EQ(receiver_->received_bytes(expected.attempt()), 0);
}

TEST_F(ReceiverTest, RecordsOfCorruptFramesAreMissingAgain) {
  Handoff handoff;
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  auto frames = Frames(handoff);
  for (auto& frame : frames) {
    const auto received = receiver_->received_bytes(handoff.attempt());
    EXPECT_EQ(Deliver(std::span(frame).first(10)), FrameVerdict::kCorrupt);
    EXPECT_EQ(Deliver({}), FrameVerdict::kCorrupt);
    frame.back() ^= std::byte{1};
    EXPECT_EQ(Deliver(frame), FrameVerdict::kCorrupt);
    EXPECT_THAT(detail_, HasSubstr("digest"));
    EXPECT_EQ(receiver_->received_bytes(handoff.attempt()), received);
    frame.back() ^= std::byte{1};
  }
  callbacks_.RunAll();
  EXPECT_FALSE(handoff.received().has_value()) << "every record was written, none is right";
  for (const auto& frame : frames) EXPECT_EQ(Deliver(frame), FrameVerdict::kAccepted);
  EXPECT_EQ(detail_, "");
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
  EXPECT_EQ(handoff.Problem(), "");
}

TEST_F(ReceiverTest, RejectsAFrameAsAWholeAndKeepsTheAttemptOpen) {
  Handoff granted({.tokens = 300});
  Handoff longer({.tokens = 400});  // the sender believes in another prompt
  ASSERT_THAT(receiver_->Expect(granted.landing()), IsOk());
  EXPECT_EQ(Deliver(Frames(longer)[0]), FrameVerdict::kRejected);
  EXPECT_THAT(detail_, HasSubstr("tokens: 400, granted 300"));
  EXPECT_EQ(granted.sink().records(), 0u);
  callbacks_.RunAll();
  EXPECT_FALSE(granted.received().has_value());
  for (const auto& frame : Frames(granted)) Deliver(frame);
  callbacks_.RunAll();
  EXPECT_THAT(granted.received(), Optional(IsOk()));
}

TEST_F(ReceiverTest, AbortEndsOnceAndFencesTheAttempt) {
  Handoff handoff;
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  const auto frames = Frames(handoff);
  Deliver(frames[0]);
  receiver_->Abort(handoff.attempt(), absl::CancelledError("client gone"));
  receiver_->Abort(handoff.attempt(), absl::InternalError("again"));
  const size_t written = handoff.sink().records();
  for (const auto& frame : frames) EXPECT_EQ(Deliver(frame), FrameVerdict::kStale);
  EXPECT_EQ(handoff.sink().records(), written);
  EXPECT_FALSE(handoff.received().has_value()) << "called back on the caller's thread";
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(StatusIs(absl::StatusCode::kCancelled)));
  receiver_->Abort(handoff.attempt(), absl::InternalError("late"));
  EXPECT_EQ(callbacks_.size(), 0u);
  EXPECT_EQ(receiver_->stats().landings_failed, 1u);
}

TEST_F(ReceiverTest, AbortOfAnUnknownAttemptHasNoEffect) {
  receiver_->Abort({.request = {9, 9}, .attempt = 9}, absl::CancelledError("?"));
  EXPECT_EQ(callbacks_.size(), 0u);
}

TEST_F(ReceiverTest, DestructionEndsOpenAttempts) {
  Handoff handoff;
  ASSERT_THAT(receiver_->Expect(handoff.landing()), IsOk());
  receiver_.reset();
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(StatusIs(absl::StatusCode::kCancelled)));
}

// Stops inside Scatter until it is told to go on.
class BlockingRecords final : public SequenceRecords {
 public:
  explicit BlockingRecords(SequenceRecords* inner) : inner_(inner) {}
  void WaitUntilInside() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return inside_; });
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                    uint32_t crc) const override {
    return inner_->Gather(range, bytes, crc);
  }
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                     uint32_t crc) override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      inside_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    return inner_->Scatter(range, bytes, crc);
  }

  SequenceRecords* const inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool inside_ = false;
  bool open_ = false;
};

TEST_F(ReceiverTest, AbortReturnsAtOnceButEndsOnlyAfterTheLastWriterHasLeft) {
  Handoff handoff;
  Handoff other(
      {.key = {.attempt = {.request = {2, 2}, .attempt = 1}, .sender = 11, .receiver = 22}});
  BlockingRecords blocking(&handoff.sink());
  LandingSpec spec = handoff.landing();
  spec.records = &blocking;
  ASSERT_THAT(receiver_->Expect(std::move(spec)), IsOk());
  ASSERT_THAT(receiver_->Expect(other.landing()), IsOk());
  const auto frames = Frames(handoff);
  std::jthread writer([&] {
    std::string detail;
    EXPECT_EQ(receiver_->OnFrame(frames[0], &detail), FrameVerdict::kStale);  // nobody wants it now
  });
  blocking.WaitUntilInside();
  receiver_->Abort(handoff.attempt(), absl::CancelledError("client gone"));
  EXPECT_EQ(callbacks_.size(), 0u) << "ended with a writer inside";
  EXPECT_EQ(Deliver(frames[1]), FrameVerdict::kStale);
  EXPECT_THAT(receiver_->Expect(handoff.landing()), StatusIs(absl::StatusCode::kAlreadyExists));
  // No lock is held while writing: other attempts go on.
  for (const auto& frame : Frames(other)) EXPECT_EQ(Deliver(frame), FrameVerdict::kAccepted);
  callbacks_.RunAll();
  EXPECT_THAT(other.received(), Optional(IsOk()));
  blocking.Open();
  writer.join();
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(StatusIs(absl::StatusCode::kCancelled)));
}

TEST_F(ReceiverTest, CompletesWithTheLastWriterNotWithTheLastFrame) {
  Handoff handoff({.tokens = 20});
  BlockingRecords blocking(&handoff.sink());
  LandingSpec spec = handoff.landing();
  spec.records = &blocking;
  ASSERT_THAT(receiver_->Expect(std::move(spec)), IsOk());
  const auto frames = Frames(handoff, size_t{1} << 20);
  ASSERT_EQ(frames.size(), 1u);
  std::jthread writer([&] {
    std::string detail;
    receiver_->OnFrame(frames[0], &detail);
  });
  blocking.WaitUntilInside();
  EXPECT_EQ(callbacks_.size(), 0u) << "complete before everything is written";
  blocking.Open();
  writer.join();
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
  EXPECT_EQ(handoff.Problem(), "");
}

// Its records may turn out corrupt, and nobody would send them again.
TEST_F(ReceiverTest, NoFrameIsAcceptedForRecordsThatAnotherIsStillWriting) {
  Handoff handoff({.tokens = 20});
  BlockingRecords blocking(&handoff.sink());
  LandingSpec spec = handoff.landing();
  spec.records = &blocking;
  ASSERT_THAT(receiver_->Expect(std::move(spec)), IsOk());
  const std::vector<std::byte> frame = Frames(handoff, size_t{1} << 20)[0];
  std::vector<std::byte> corrupt = frame;
  corrupt.back() ^= std::byte{1};
  std::jthread writer([&] {
    std::string detail;
    EXPECT_EQ(receiver_->OnFrame(corrupt, &detail), FrameVerdict::kCorrupt);
  });
  blocking.WaitUntilInside();
  EXPECT_EQ(Deliver(frame), FrameVerdict::kCorrupt);  // overtakes the corrupt copy
  EXPECT_THAT(detail_, HasSubstr("just being written"));
  blocking.Open();
  writer.join();
  EXPECT_EQ(Deliver(frame), FrameVerdict::kAccepted) << detail_;
  callbacks_.RunAll();
  EXPECT_THAT(handoff.received(), Optional(IsOk()));
  EXPECT_EQ(handoff.Problem(), "");
}

}  // namespace
}  // namespace baton::kvtransfer
