#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "decode/decoder.h"
#include "gtest/gtest.h"
#include "tests/engine/core/small_engine.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

// The decoder with a real engine between a prefill worker and a transport that do what the test
// says, in the order it says.

namespace baton::decode {

inline constexpr std::chrono::seconds kPatience{60};

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
  kvtransfer::FrameVerdict OnFrame(std::span<const std::byte>, std::string*) override {
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
  // Before anything comes: told on the engine thread how many tokens there are in all.
  std::function<void(uint32_t tokens)> on_send = [](uint32_t) {};

  void Send(const Delta& delta) override {
    on_send(delta.completion_tokens);
    MutexLock lock(mutex_);
    tokens_.insert(tokens_.end(), delta.tokens.begin(), delta.tokens.end());
    logprobs_.insert(logprobs_.end(), delta.logprobs.begin(), delta.logprobs.end());
    if (delta.served != nullptr) served_.emplace(delta.completion_tokens, *delta.served);
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
  std::vector<TokenLogprobs> logprobs() const {
    MutexLock lock(mutex_);
    return logprobs_;
  }
  // By the number of tokens that had been told of then.
  std::map<uint32_t, ServedFigures> served() const {
    MutexLock lock(mutex_);
    return served_;
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
  std::vector<TokenLogprobs> logprobs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, ServedFigures> served_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int end_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Leg leg_ ABSL_GUARDED_BY(mutex_) = Leg::kDecode;
  Peer peer_ ABSL_GUARDED_BY(mutex_);
};

class DecoderFixture : public ::testing::Test {
 protected:
  DecoderFixture() {
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

  ~DecoderFixture() override {
    for (size_t i = 0; i < client_.calls(); ++i)
      client_.call(i)->End(absl::CancelledError("test is over"));
    while (receiver_.expecting()) receiver_.EndLanding(absl::CancelledError("test is over"));
    decoder_->Stop(absl::UnavailableError("test is over"));
    EXPECT_THAT(testing::SmallEngine().AuditCache(), testing::IsOk());
    EXPECT_EQ(testing::SmallEngine().usage().pages_free,
              testing::SmallEngine().usage().pages_total);
  }

  struct Asked {
    std::vector<Peer> peers = {};  // none: the prompt is computed here
    size_t prompt_tokens = 100;
    uint32_t max_tokens = 3;
    std::optional<Clock::Duration> timeout = {};
    std::shared_ptr<FakeStream> stream = {};  // stream_ if there is none
    std::optional<int32_t> top_logprobs = {};
  };
  Decoder::Id Ask(Asked asked) {
    auto id =
        decoder_->Submit({.attempt = {.request = {1, ++requests_}, .attempt = 1},
                          .prompt = std::vector<int32_t>(asked.prompt_tokens, 20),
                          .sampling = {.temperature = 0,
                                       .max_tokens = asked.max_tokens,
                                       .ignore_eos = true,
                                       .top_logprobs = asked.top_logprobs},
                          .prefill_workers = std::move(asked.peers),
                          .stream = asked.stream != nullptr ? std::move(asked.stream) : stream_,
                          .timeout = asked.timeout});
    EXPECT_THAT(id, testing::IsOk());
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
  std::shared_ptr<FakeCall> Land() { return Land({.peers = {{"p:1", 1}}}); }
  std::shared_ptr<FakeCall> Land(Asked asked) {
    Ask(std::move(asked));
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

}  // namespace baton::decode
