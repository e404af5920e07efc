#include "decode/decoder.h"

#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tests/engine/core/small_engine.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

// The decoder with a real engine between a prefill worker and a transport that do what the test
// says, in the order it says.

namespace baton::decode {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};

class FakeCall final : public PrefillCall {
 public:
  FakeCall(PrefillOpen open, PrefillEvents events, Peer peer)
      : open(std::move(open)), events(std::move(events)), peer(std::move(peer)) {}
  void Grant(const kvtransfer::Held&) override { granted = true; }
  void Received() override { received = true; }
  std::string transport() const override { return "grpc"; }
  void Cancel() override {
    cancelled = true;
    End(absl::CancelledError("cancelled"));
  }
  // The first end counts.
  void End(absl::Status status) {
    std::function<void(absl::Status)> on_end;
    {
      MutexLock lock(mutex_);
      on_end = std::exchange(events.on_end, nullptr);
    }
    if (on_end) on_end(std::move(status));
  }

  const PrefillOpen open;
  PrefillEvents events;
  const Peer peer;
  std::atomic<bool> granted = false;
  std::atomic<bool> received = false;
  std::atomic<bool> cancelled = false;

 private:
  Mutex mutex_;
};

class FakePrefillClient final : public PrefillClient {
 public:
  std::shared_ptr<PrefillCall> Open(const Peer& peer, PrefillOpen open,
                                    PrefillEvents events) override {
    MutexLock lock(mutex_);
    calls_.push_back(std::make_shared<FakeCall>(std::move(open), std::move(events), peer));
    changed_.NotifyAll();
    return calls_.back();
  }
  // The n-th call ever opened, once it is.
  std::shared_ptr<FakeCall> call(size_t n) {
    MutexLock lock(mutex_);
    while (calls_.size() <= n) {
      if (!changed_.WaitFor(mutex_, kPatience)) return nullptr;
    }
    return calls_[n];
  }
  size_t calls() {
    MutexLock lock(mutex_);
    return calls_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<FakeCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

class FakeReceiver final : public kvtransfer::Receiver {
 public:
  absl::Status Expect(kvtransfer::LandingSpec spec) override {
    MutexLock lock(mutex_);
    landings_.push_back(std::move(spec));
    return absl::OkStatus();
  }
  void Abort(const AttemptId&, absl::Status why) override {
    MutexLock lock(mutex_);
    aborted_ = true;
    why_ = std::move(why);
  }
  kvtransfer::FrameVerdict OnFrame(std::span<const std::byte>, uint32_t, std::string*) override {
    return kvtransfer::FrameVerdict::kStale;
  }
  kvtransfer::FrameVerdict OnDeviceFrame(std::span<const std::byte>, kvtransfer::RecordMover&,
                                         std::string*) override {
    return kvtransfer::FrameVerdict::kStale;
  }
  int64_t received_bytes(const AttemptId&) const override { return bytes; }
  kvtransfer::ReceiverStats stats() const override { return {}; }

  bool expecting() const {
    MutexLock lock(mutex_);
    return !landings_.empty();
  }
  bool aborted() const {
    MutexLock lock(mutex_);
    return aborted_;
  }
  // The one that was opened first.
  void EndLanding(absl::Status status) {
    kvtransfer::LandingSpec ended;
    {
      MutexLock lock(mutex_);
      ended = std::move(landings_.front());
      landings_.pop_front();
    }
    ended.on_end(std::move(status));
  }
  std::atomic<int64_t> bytes = 0;

 private:
  mutable Mutex mutex_;
  std::deque<kvtransfer::LandingSpec> landings_ ABSL_GUARDED_BY(mutex_);
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

class FakeStream final : public TokenStream {
 public:
  void Send(const Delta& delta) override {
    MutexLock lock(mutex_);
    tokens_.insert(tokens_.end(), delta.tokens.begin(), delta.tokens.end());
    changed_.NotifyAll();
  }
  void End(absl::Status status, Leg leg, const Peer& peer) override {
    MutexLock lock(mutex_);
    ended_ = true;
    static std::atomic<int> ends = 0;
    end_number_ = ++ends;
    status_ = std::move(status);
    leg_ = leg;
    peer_ = peer;
    changed_.NotifyAll();
  }
  absl::Status Wait() {
    MutexLock lock(mutex_);
    while (!ended_) {
      if (!changed_.WaitFor(mutex_, kPatience)) return absl::InternalError("did not end");
    }
    return status_;
  }
  bool ended() const {
    MutexLock lock(mutex_);
    return ended_;
  }
  // In the order in which streams end.
  int end_number() const {
    MutexLock lock(mutex_);
    return end_number_;
  }
  std::vector<int32_t> tokens() const {
    MutexLock lock(mutex_);
    return tokens_;
  }
  Leg leg() const {
    MutexLock lock(mutex_);
    return leg_;
  }
  std::string peer() const {
    MutexLock lock(mutex_);
    return peer_.address;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<int32_t> tokens_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int end_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Leg leg_ ABSL_GUARDED_BY(mutex_) = Leg::kDecode;
  Peer peer_ ABSL_GUARDED_BY(mutex_);
};

class DecoderTest : public ::testing::Test {
 protected:
  DecoderTest() {
    DecoderOptions options;
    options.admission = {.waiting = 8, .waiting_per_prefill = 2};
    options.incarnation = 7;
    options.chunks = {.step_tokens = 16, .chunk_tokens = 16};  // several steps a prompt
    options.growth_tokens = 28;                                // a page of 128 with 100 of prompt
    options.accept_timeout = std::chrono::seconds(5);
    options.queue_timeout = std::chrono::seconds(100);
    options.handoff_timeout = std::chrono::seconds(10);
    options.clock = &clock_;
    decoder_ =
        std::make_unique<Decoder>(options, testing::SmallEngine(), receiver_, client_, metrics_);
  }

  ~DecoderTest() override {
    for (size_t i = 0; i < client_.calls(); ++i)
      client_.call(i)->End(absl::CancelledError("test is over"));
    while (receiver_.expecting()) receiver_.EndLanding(absl::CancelledError("test is over"));
    decoder_->Stop(absl::UnavailableError("test is over"));
    EXPECT_THAT(testing::SmallEngine().AuditCache(), IsOk());
    EXPECT_EQ(testing::SmallEngine().usage().pages_free,
              testing::SmallEngine().usage().pages_total);
  }

  struct Asked {
    std::vector<Peer> peers = {};  // none: the prompt is computed here
    size_t prompt_tokens = 100;
    uint32_t max_tokens = 3;
    std::optional<Clock::Duration> timeout = {};
    std::shared_ptr<FakeStream> stream = {};  // stream_ if there is none
  };
  Decoder::Id Ask(Asked asked) {
    auto id = decoder_->Submit(
        {.attempt = {.request = {1, ++requests_}, .attempt = 1},
         .prompt = std::vector<int32_t>(asked.prompt_tokens, 20),
         .sampling = {.temperature = 0, .max_tokens = asked.max_tokens, .ignore_eos = true},
         .prefill_workers = std::move(asked.peers),
         .stream = asked.stream != nullptr ? std::move(asked.stream) : stream_,
         .timeout = asked.timeout});
    EXPECT_THAT(id, IsOk());
    return id.value_or(0);
  }
  Decoder::Id Submit(std::vector<Peer> peers) { return Ask({.peers = std::move(peers)}); }

  void WaitFor(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
  }

  // A request granted and landing at peer "p:1".
  std::shared_ptr<FakeCall> Land() {
    Submit({{"p:1", 1}});
    auto call = client_.call(0);
    call->events.on_accepted(1);
    call->events.on_started();
    WaitFor([&] { return call->granted.load(); });
    EXPECT_TRUE(receiver_.expecting()) << "the landing opens before the grant is sent";
    return call;
  }

  testing::FakeClock clock_;
  FakePrefillClient client_;
  FakeReceiver receiver_;
  Metrics registry_{"decode"};
  WorkerMetrics metrics_{registry_};
  std::shared_ptr<FakeStream> stream_ = std::make_shared<FakeStream>();
  std::unique_ptr<Decoder> decoder_;
  uint64_t requests_ = 0;
};

TEST_F(DecoderTest, RunsOnceEveryByteAndTheFirstTokenAreThere) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  EXPECT_FALSE(call->received);
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_TRUE(call->received);
  ASSERT_EQ(stream_->tokens().size(), 3u);
  EXPECT_EQ(stream_->tokens().front(), 42);
}

TEST_F(DecoderTest, ADeadStreamIsSuccessOnceEverythingIsThere) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  client_.call(0)->End(absl::UnavailableError("socket closed"));
  WaitFor([&] { return receiver_.aborted(); });  // fenced first
  EXPECT_FALSE(stream_->ended());
  receiver_.EndLanding(absl::OkStatus());  // it had been complete
  EXPECT_THAT(stream_->Wait(), IsOk());
}

TEST_F(DecoderTest, ADeadStreamWithBytesMissingNamesThePrefillWorker) {
  const auto call = Land();
  client_.call(0)->End(absl::UnavailableError("socket closed"));
  WaitFor([&] { return receiver_.aborted(); });
  receiver_.EndLanding(absl::CancelledError("fenced"));
  EXPECT_THAT(stream_->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("socket closed")));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
  EXPECT_EQ(stream_->peer(), "p:1");
}

TEST_F(DecoderTest, PagesStayInQuarantineUntilTheLandingHasEnded) {
  Land();
  decoder_->Cancel(1, absl::CancelledError("client left"));
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kCancelled));
  WaitFor([&] { return decoder_->load().cache.pages_quarantine == 1; });
  WaitFor([&] { return receiver_.aborted(); });
  EXPECT_EQ(decoder_->load().cache.pages_free, 7);
  receiver_.EndLanding(absl::CancelledError("fenced"));
  WaitFor([&] { return decoder_->load().cache.pages_free == 8; });
}

TEST_F(DecoderTest, RefusalsGoDownTheListAndTheLastOneCounts) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  EXPECT_EQ(client_.call(0)->peer.address, "p:1");
  client_.call(0)->End(absl::ResourceExhaustedError("queue is full"));
  ASSERT_NE(client_.call(1), nullptr);
  EXPECT_EQ(client_.call(1)->peer.address, "p:2");
  client_.call(1)->End(absl::UnavailableError("connection refused"));
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
  EXPECT_EQ(stream_->peer(), "p:2");
}

TEST_F(DecoderTest, APromptTooLongForOnePrefillWorkerMayFitTheNext) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  client_.call(0)->End(absl::OutOfRangeError("100 tokens exceed the 64 here"));
  ASSERT_NE(client_.call(1), nullptr);
  EXPECT_EQ(client_.call(1)->peer.address, "p:2");
}

TEST_F(DecoderTest, ARequestThatIsItselfAtFaultIsAskedOfNobodyElse) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  client_.call(0)->End(absl::InvalidArgumentError("top_p is 7"));
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(client_.calls(), 1u);
}

TEST_F(DecoderTest, APrefillWorkerThatDoesNotAnswerIsLeftForTheNext) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  const auto silent = client_.call(0);
  clock_.Advance(std::chrono::seconds(6));
  decoder_->Tick();
  ASSERT_NE(client_.call(1), nullptr);
  WaitFor([&] { return silent->cancelled.load(); });
  // What it says now means nothing.
  silent->events.on_accepted(1);
  silent->events.on_started();
  const auto call = client_.call(1);
  call->events.on_accepted(2);
  call->events.on_started();
  WaitFor([&] { return call->granted.load(); });
  EXPECT_FALSE(silent->granted);
}

TEST_F(DecoderTest, AStuckPrefillWorkerFillsItsQuotaOnly) {
  for (int i = 0; i < 3; ++i) Submit({{"p:1", 1}, {"p:2", 2}});
  ASSERT_NE(client_.call(2), nullptr);
  EXPECT_EQ(client_.call(0)->peer.address, "p:1");
  EXPECT_EQ(client_.call(1)->peer.address, "p:1");
  EXPECT_EQ(client_.call(2)->peer.address, "p:2");
  Submit({{"p:1", 1}});
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(DecoderTest, ARefusedRequestIsCounted) {
  GenerateRequest request;
  request.stream = stream_;
  EXPECT_FALSE(decoder_->Submit(request).ok());
  EXPECT_EQ(metrics_.requests[Outcome::kInvalid].Value(), 1);
  EXPECT_TRUE(decoder_->Drain(std::chrono::seconds(0)));
  request.prompt = {20};
  EXPECT_FALSE(decoder_->Submit(request).ok());
  EXPECT_EQ(metrics_.requests[Outcome::kUnavailable].Value(), 1);
}

TEST_F(DecoderTest, AFirstTokenOutsideTheVocabularyIsThePrefillWorkersFault) {
  const auto call = Land();
  call->events.on_finished({.first_token = 1 << 20});
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kInternal, HasSubstr("vocabulary")));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
}

TEST_F(DecoderTest, AHandOffWithoutProgressIsGivenUp) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  WaitFor([&] { return !stream_->ended() && decoder_->load().cache.pages_transfer == 1; });
  clock_.Advance(std::chrono::seconds(8));
  receiver_.bytes = 1000;
  decoder_->Tick();  // there was some
  clock_.Advance(std::chrono::seconds(8));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(8));
  decoder_->Tick();
  EXPECT_THAT(stream_->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("at 1000 bytes")));
  EXPECT_EQ(stream_->leg(), Leg::kTransfer);
  WaitFor([&] { return receiver_.aborted(); });
}

TEST_F(DecoderTest, APrefillWorkerThatStandsStillIsGivenUp) {
  Land();
  clock_.Advance(std::chrono::seconds(90));
  receiver_.bytes = 1000;
  decoder_->Tick();  // a chunk has come
  clock_.Advance(std::chrono::seconds(90));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(20));
  decoder_->Tick();
  EXPECT_THAT(stream_->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("prefill made no progress")));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
  EXPECT_EQ(stream_->peer(), "p:1");
}

TEST_F(DecoderTest, WhatIsLeftOfTheDeadlineGoesToThePrefillWorker) {
  Ask({.peers = {{"p:1", 1}, {"p:2", 2}}, .timeout = std::chrono::seconds(20)});
  const Clock::Duration first = *client_.call(0)->open.timeout;
  clock_.Advance(std::chrono::seconds(3));
  client_.call(0)->End(absl::UnavailableError("connection refused"));
  ASSERT_NE(client_.call(1), nullptr);
  EXPECT_GE(first, std::chrono::seconds(20));
  EXPECT_EQ(first - *client_.call(1)->open.timeout, std::chrono::seconds(3));
}

TEST_F(DecoderTest, WithoutADeadlineThePrefillWorkerHasNoneEither) {
  Submit({{"p:1", 1}});
  EXPECT_EQ(client_.call(0)->open.timeout, std::nullopt);
}

// The request is served, but its call would keep the gate shut for ever.
TEST_F(DecoderTest, APrefillWorkerThatDoesNotEndACompleteHandOffIsCutOff) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_FALSE(decoder_->Drain(std::chrono::milliseconds(1)));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_FALSE(call->cancelled);
  decoder_->Tick();
  EXPECT_TRUE(decoder_->Drain(kPatience));
  EXPECT_TRUE(call->cancelled);
}

TEST_F(DecoderTest, StopCutsOffAPrefillWorkerThatDoesNotEndACompleteHandOff) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  decoder_->Stop(absl::UnavailableError("shuts down"));
  EXPECT_TRUE(call->cancelled);
}

TEST_F(DecoderTest, ACallThatHasEndedIsForgotten) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  call->End(absl::OkStatus());
  WaitFor([&] { return receiver_.aborted(); });
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  clock_.Advance(std::chrono::seconds(1));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(11));
  decoder_->Tick();
  EXPECT_TRUE(decoder_->Drain(kPatience));
  EXPECT_FALSE(call->cancelled);
}

TEST_F(DecoderTest, AnAnswerThatTheRouterCutsShortIsAFinishedRequest) {
  Ask({.max_tokens = 400});
  WaitFor([&] { return !stream_->tokens().empty(); });
  decoder_->Finish({.request = {1, 1}, .attempt = 2});  // nobody's
  decoder_->Finish({.request = {1, 1}, .attempt = 1});
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_LT(stream_->tokens().size(), 400u);
  EXPECT_EQ(metrics_.requests[Outcome::kOk].Value(), 1);
  EXPECT_EQ(metrics_.requests[Outcome::kCancelled].Value(), 0);
}

TEST_F(DecoderTest, NobodyWaitsForever) {
  Submit({{"p:1", 1}});
  client_.call(0)->events.on_accepted(1);
  clock_.Advance(std::chrono::seconds(101));
  decoder_->Tick();
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("100 s")));
}

// The first request has one page of eight, and needs a second one when it has written 28 tokens.

TEST_F(DecoderTest, APromptThatIsComputedHereGivesWayToAnOlderSequence) {
  Ask({.max_tokens = 60});
  const auto younger = std::make_shared<FakeStream>();
  Ask({.prompt_tokens = 800, .stream = younger});
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_THAT(younger->Wait(), IsOk());
  EXPECT_EQ(stream_->tokens().size(), 60u);
  EXPECT_EQ(younger->tokens().size(), 3u);
  EXPECT_LT(stream_->end_number(), younger->end_number());
}

TEST_F(DecoderTest, AnOlderSequenceKeepsItsPagesWhileAYoungerOneLands) {
  const auto grant = [&](size_t n) {
    client_.call(n)->events.on_accepted(1);
    client_.call(n)->events.on_started();
    WaitFor([&] { return client_.call(n)->granted.load(); });
  };
  Ask({.peers = {{"p:1", 1}}, .max_tokens = 60});
  grant(0);
  const auto younger = std::make_shared<FakeStream>();
  Ask({.peers = {{"p:1", 1}}, .prompt_tokens = 800, .stream = younger});
  grant(1);
  client_.call(0)->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());

  WaitFor([&] { return stream_->tokens().size() >= 27; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it would have been evicted by now
  EXPECT_FALSE(stream_->ended());
  EXPECT_EQ(decoder_->load().cache.pages_sequences, 1);
  EXPECT_EQ(decoder_->load().cache.pages_transfer, 7);

  client_.call(1)->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_THAT(younger->Wait(), IsOk());
  EXPECT_EQ(stream_->tokens().size(), 60u);
}

}  // namespace
}  // namespace baton::decode
