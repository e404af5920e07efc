#include "prefill/prefiller.h"

#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tests/engine/core/small_engine.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

// The prefiller with a real engine between a decode worker and a sender that do what the test says,
// in the order it says.

namespace baton::prefill {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};
constexpr char kTransport[] = "grpc";

class FakeStream final : public RunStream {
 public:
  void Accepted() override {}
  void Started(int64_t) override { Note(started_); }
  void Finished(const FinishedInfo&) override { Note(finished_); }
  void End(absl::Status status) override {
    MutexLock lock(mutex_);
    status_ = std::move(status);
    changed_.NotifyAll();
  }

  bool started() const {
    MutexLock lock(mutex_);
    return started_;
  }
  bool finished() const {
    MutexLock lock(mutex_);
    return finished_;
  }
  bool ended() const {
    MutexLock lock(mutex_);
    return status_.has_value();
  }
  absl::Status WaitForEnd() {
    MutexLock lock(mutex_);
    while (!status_) {
      if (!changed_.WaitFor(mutex_, kPatience)) return absl::InternalError("did not end");
    }
    return *status_;
  }

 private:
  void Note(bool& what) {
    MutexLock lock(mutex_);
    what = true;
  }

  mutable Mutex mutex_;
  CondVar changed_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

class FakeSender final : public kvtransfer::Sender {
 public:
  absl::Status Open(kvtransfer::OutboundSpec spec) override {
    MutexLock lock(mutex_);
    on_end_ = std::move(spec.on_end);
    return absl::OkStatus();
  }
  void Advance(const AttemptId&, int64_t) override {}
  void Finish(const AttemptId&, int64_t) override {}
  void Cancel(const AttemptId&, absl::Status) override {
    MutexLock lock(mutex_);
    cancelled_ = true;
  }
  kvtransfer::SenderStats stats() const override { return {.frames_by_verdict = {5, 0, 2, 0}}; }

  bool open() const {
    MutexLock lock(mutex_);
    return on_end_ != nullptr;
  }
  bool cancelled() const {
    MutexLock lock(mutex_);
    return cancelled_;
  }
  void EndTransfer(absl::Status status) {
    std::function<void(absl::Status)> on_end;
    {
      MutexLock lock(mutex_);
      on_end.swap(on_end_);
    }
    on_end(std::move(status));
  }

 private:
  mutable Mutex mutex_;
  std::function<void(absl::Status)> on_end_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class PrefillerTest : public ::testing::Test {
 protected:
  PrefillerTest() {
    PrefillerOptions options;
    options.start = {.queue = 8, .ungranted_pages = 8, .ungranted_sequences = 2};
    options.incarnation = 7;
    options.grant_timeout = std::chrono::seconds(60);
    options.handoff_timeout = std::chrono::seconds(30);
    options.clock = &clock_;
    prefiller_ = std::make_unique<Prefiller>(options, testing::SmallEngine(), sender_, metrics_);
  }

  ~PrefillerTest() override {
    if (sender_.open()) sender_.EndTransfer(absl::CancelledError("test is over"));
    prefiller_->Stop(absl::UnavailableError("test is over"));
    EXPECT_THAT(testing::SmallEngine().AuditCache(), IsOk());
    EXPECT_EQ(testing::SmallEngine().usage().pages_free,
              testing::SmallEngine().usage().pages_total);
  }

  Prefiller::RunId Submit(std::shared_ptr<FakeStream> stream, size_t tokens = 100) {
    auto id = prefiller_->Submit({.attempt = {.request = {1, ++requests_}, .attempt = 1},
                                  .decode_address = "d:1",
                                  .decode_incarnation = 9,
                                  .prompt = std::vector<int32_t>(tokens, 20),
                                  .sampling = {.temperature = 0},
                                  .stream = std::move(stream)});
    EXPECT_THAT(id, IsOk());
    return id.value_or(0);
  }

  void WaitFor(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
  }

  // Deadlines have been looked at when this has returned.
  void Tick() {
    prefiller_->Tick();
    const auto last = std::make_shared<FakeStream>();
    prefiller_->Abandon(Submit(last), absl::CancelledError("only asked to wait for it"));
    EXPECT_THAT(last->WaitForEnd(), StatusIs(absl::StatusCode::kCancelled));
  }

  // A prompt that is computed, and granted `wait` later.
  void ComputeThenGrant(Clock::Duration wait) {
    const Prefiller::RunId run = Submit(stream_);
    WaitFor([&] { return stream_->finished(); });
    clock_.Advance(wait);
    prefiller_->Grant(run, {}, kTransport);
    WaitFor([&] { return sender_.open(); });
  }

  testing::FakeClock clock_;
  FakeSender sender_;
  Metrics registry_{"prefill"};
  WorkerMetrics metrics_{registry_};
  std::shared_ptr<FakeStream> stream_ = std::make_shared<FakeStream>();
  std::unique_ptr<Prefiller> prefiller_;
  uint64_t requests_ = 0;
};

TEST_F(PrefillerTest, NothingIsSentBeforeTheGrantAndReceivedEndsTheAttempt) {
  const Prefiller::RunId run = Submit(stream_);
  WaitFor([&] { return stream_->finished(); });
  EXPECT_FALSE(sender_.open());
  prefiller_->Grant(run, {}, kTransport);
  WaitFor([&] { return sender_.open(); });
  sender_.EndTransfer(absl::OkStatus());
  prefiller_->Received(run);
  EXPECT_THAT(stream_->WaitForEnd(), IsOk());
}

TEST_F(PrefillerTest, ALateGrantLeavesTheHandOffItsWholeTime) {
  ComputeThenGrant(std::chrono::seconds(40));
  clock_.Advance(std::chrono::seconds(29));
  Tick();
  EXPECT_FALSE(stream_->ended());
  clock_.Advance(std::chrono::seconds(2));
  prefiller_->Tick();
  EXPECT_THAT(stream_->WaitForEnd(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("did not receive everything")));
  WaitFor([&] { return sender_.cancelled(); });
}

TEST_F(PrefillerTest, TheWaitForTheGrantIsNoTransferTime) {
  ComputeThenGrant(std::chrono::seconds(40));
  clock_.Advance(std::chrono::seconds(2));
  sender_.EndTransfer(absl::OkStatus());
  prefiller_->Received(1);
  EXPECT_THAT(stream_->WaitForEnd(), IsOk());
  const prometheus::ClientMetric measured = metrics_.kv_transfer_duration(kTransport).Collect();
  EXPECT_EQ(measured.histogram.sample_count, 1u);
  EXPECT_DOUBLE_EQ(measured.histogram.sample_sum, 2);
}

TEST_F(PrefillerTest, AGrantThatDoesNotComeMeansThatTheDecodeWorkerIsFull) {
  Submit(stream_);
  WaitFor([&] { return stream_->finished(); });
  clock_.Advance(std::chrono::seconds(61));
  prefiller_->Tick();
  EXPECT_THAT(stream_->WaitForEnd(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("decode worker d:1")));
  WaitFor([&] { return prefiller_->load().cache.pages_free == 8; });
}

TEST_F(PrefillerTest, ATransferThatTheDecodeWorkerGaveUpCountsAsCancelled) {
  ComputeThenGrant(std::chrono::seconds(0));
  sender_.EndTransfer(absl::AbortedError("frame 1 is stale"));
  EXPECT_THAT(stream_->WaitForEnd(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(metrics_.kv_transfers[Outcome::kCancelled].Value(), 1);
  EXPECT_EQ(metrics_.kv_transfers[Outcome::kUnavailable].Value(), 0);
}

TEST_F(PrefillerTest, ARefusedAttemptIsCounted) {
  RunRequest request;
  request.stream = stream_;
  EXPECT_FALSE(prefiller_->Submit(std::move(request)).ok());
  EXPECT_EQ(metrics_.requests[Outcome::kInvalid].Value(), 1);
}

// UNAVAILABLE would look like a worker that is gone, which costs its request the one retry there is
// after a crash.
TEST_F(PrefillerTest, ADrainingWorkerRefusesLikeOneThatIsFull) {
  EXPECT_TRUE(prefiller_->Drain(kPatience));
  RunRequest request;
  request.prompt = std::vector<int32_t>(100, 20);
  request.sampling.temperature = 0;
  request.stream = stream_;
  EXPECT_THAT(prefiller_->Submit(std::move(request)).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("draining")));
}

TEST_F(PrefillerTest, FramesAreCountedOnceAsTheReceiverAnsweredThem) {
  Tick();
  Tick();
  EXPECT_EQ(metrics_.kv_frames[FrameLabel::kAccepted].Value(), 5);
  EXPECT_EQ(metrics_.kv_frames[FrameLabel::kCorrupt].Value(), 2);
}

TEST_F(PrefillerTest, PagesStayInQuarantineUntilTheTransferHasEnded) {
  ComputeThenGrant(std::chrono::seconds(0));
  prefiller_->Abandon(1, absl::UnavailableError("decode is gone"));
  EXPECT_THAT(stream_->WaitForEnd(), StatusIs(absl::StatusCode::kUnavailable));
  WaitFor([&] { return prefiller_->load().cache.pages_quarantine == 1; });
  EXPECT_TRUE(sender_.cancelled());
  sender_.EndTransfer(absl::CancelledError("cancelled"));
  WaitFor([&] { return prefiller_->load().cache.pages_free == 8; });
}

TEST_F(PrefillerTest, OfTwoRunsOfOneAttemptTheFirstIsSentAndTheOtherRefused) {
  ComputeThenGrant(std::chrono::seconds(0));
  --requests_;
  const auto second = std::make_shared<FakeStream>();
  const Prefiller::RunId run = Submit(second);
  WaitFor([&] { return second->started(); });
  prefiller_->Grant(run, {}, "shm");
  EXPECT_THAT(second->WaitForEnd(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_FALSE(stream_->ended());
  EXPECT_FALSE(sender_.cancelled());
}

TEST_F(PrefillerTest, APromptWithoutPagesWaitsForThoseOfOthers) {
  Submit(stream_, 900);
  WaitFor([&] { return stream_->finished(); });
  const auto second = std::make_shared<FakeStream>();
  const Prefiller::RunId waiting = Submit(second, 200);
  WaitFor([&] { return prefiller_->load().waiting == 1; });
  EXPECT_FALSE(second->started());
  prefiller_->Abandon(1, absl::CancelledError("done with it"));
  WaitFor([&] { return second->finished(); });
  prefiller_->Abandon(waiting, absl::CancelledError("done with it"));
}

}  // namespace
}  // namespace baton::prefill
