#include "tests/kvtransfer/handoff_model.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "kvtransfer/host_frame.h"

namespace baton::kvtransfer {
namespace {

constexpr size_t kWorkers = 2;  // of each kind
constexpr size_t kMaxAttempts = 10;
constexpr int64_t kMaxTokens = 700;
constexpr int64_t kPageTokens = 64;
constexpr int64_t kPages = 16;  // of a decode worker: one long prompt and something
constexpr int64_t kPrefixTokens = 512;
constexpr int64_t kPrefixPages = kPrefixTokens / kPageTokens;
constexpr size_t kLateFrames = 16;

SenderOptions Options() {
  return {.send_tokens = 128,
          .frame_bytes = 700,
          .attempt_frames = 3,
          .peer_frames = 5,
          .resends = 2,
          .progress_timeout = std::chrono::seconds(2)};
}

FaultRates Rates() {
  return {.drop = 0.002,
          .drop_answer = 0.002,
          .delay = 0.05,
          .reorder = 0.05,
          .duplicate = 0.05,
          .corrupt = 0.05,
          .stall = 0.002,
          .cut = 0.002,
          .max_duration = std::chrono::seconds(1)};
}

}  // namespace

// Keeps some frames, to be delivered once more when nobody expects them.
class HandoffModel::Tap final : public Receiver {
 public:
  Tap(HandoffModel* model, size_t decode, Receiver* to) : model_(model), decode_(decode), to_(to) {}
  absl::Status Expect(LandingSpec spec) override { return to_->Expect(std::move(spec)); }
  void Abort(const AttemptId& attempt, absl::Status why) override {
    to_->Abort(attempt, std::move(why));
  }
  FrameVerdict OnFrame(std::span<const std::byte> frame, std::string* detail) override {
    if (model_->Pick(8) == 0) {
      model_->late_.emplace_back(decode_, std::vector<std::byte>(frame.begin(), frame.end()));
      if (model_->late_.size() > kLateFrames)
        model_->late_.erase(model_->late_.begin() +
                            model_->Pick(static_cast<int64_t>(kLateFrames)));
    }
    return to_->OnFrame(frame, detail);
  }
  FrameVerdict OnDeviceFrame(std::span<const std::byte> staging, RecordMover& mover,
                             std::string* detail) override {
    return to_->OnDeviceFrame(staging, mover, detail);
  }
  int64_t received_bytes(const AttemptId& attempt) const override {
    return to_->received_bytes(attempt);
  }
  ReceiverStats stats() const override { return to_->stats(); }

 private:
  HandoffModel* const model_;
  const size_t decode_;
  Receiver* const to_;
};

// Lets other things happen in the middle of a frame, as they do when frames are written on a thread
// of their own.
class HandoffModel::InterruptedSink final : public SequenceRecords {
 public:
  InterruptedSink(HandoffModel* model, SequenceRecords* sink) : model_(model), sink_(sink) {}

 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                    uint32_t crc) const override {
    return sink_->Gather(range, bytes, crc);
  }
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                     uint32_t crc) override {
    if (!model_->inside_ && model_->Pick(8) == 0) {
      model_->inside_ = true;
      for (int64_t i = model_->Pick(12); i > 0; --i) model_->StepInside(model_->Pick(1000));
      model_->inside_ = false;
    }
    return sink_->Scatter(range, bytes, crc);
  }

  HandoffModel* const model_;
  SequenceRecords* const sink_;
};

HandoffModel::HandoffModel(uint64_t seed, Grants grants)
    : random_(seed), grants_(grants), decodes_(kWorkers), prefills_(kWorkers) {
  for (size_t i = 0; i < kWorkers; ++i) decodes_[i].endpoint = absl::StrCat("decode-", i);
  for (Decode& decode : decodes_) RestartDecode(decode);
  for (Prefill& prefill : prefills_) RestartPrefill(prefill);
}

HandoffModel::~HandoffModel() = default;

void HandoffModel::Run(int64_t steps) {
  for (int64_t i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
    Step();
    if (i % 16 == 0) Reap();
  }
}

void HandoffModel::Step() {
  const int64_t dice = Pick(1000);
  if (dice < 30) {
    AskForPages();
  } else if (dice < 40) {
    Decode& decode = decodes_[static_cast<size_t>(Pick(kWorkers))];
    if (decode.running.empty()) return;
    GiveBack(decode, decode.running.front());
    decode.running.pop_front();
  } else if (dice < 41) {
    RestartPrefill(prefills_[static_cast<size_t>(Pick(kWorkers))]);
  } else if (dice < 42) {
    RestartDecode(decodes_[static_cast<size_t>(Pick(kWorkers))]);
  } else if (dice < 70) {
    GrantWaiting(static_cast<size_t>(Pick(kWorkers)));
  } else {
    StepInside(dice);
  }
}

void HandoffModel::StepInside(int64_t dice) {
  Attempt* const attempt = PickAttempt();
  if (dice < 110) {
    if (attempt != nullptr) Advance(*attempt);
  } else if (dice < 135) {
    if (attempt != nullptr) FinishPrompt(*attempt);
  } else if (dice < 138) {
    if (attempt != nullptr) {
      SenderOf(*attempt).Cancel(attempt->handoff.attempt(), absl::CancelledError("dice"));
    }
  } else if (dice < 141) {
    if (attempt != nullptr) {
      ReceiverOf(*attempt).Abort(attempt->handoff.attempt(), absl::CancelledError("dice"));
    }
  } else if (dice < 150) {
    DeliverLate();
  } else if (dice < 180) {
    clock_.Advance(std::chrono::milliseconds(Pick(60)));
  } else if (dice < 520) {
    if (deliveries_.size() > 0) {
      deliveries_.RunAt(static_cast<size_t>(Pick(static_cast<int64_t>(deliveries_.size()))));
    }
  } else if (dice < 620) {
    if (callbacks_.size() > 0) callbacks_.RunAt(0);
  } else {
    prefills_[static_cast<size_t>(Pick(kWorkers))].sender->Step();
  }
}

// A number that has been used before may be used again for the same prompt, but not by the same
// sender.
HandoffModel::Ask HandoffModel::NewAsk(Incarnation sender) {
  Ask ask{.attempt = {}, .sender = sender, .tokens = Pick(kMaxTokens), .held = {}};
  if (!ended_.empty() && Pick(3) == 0) {
    const auto& [attempt, ended] = *std::next(ended_.begin(), Pick(std::ssize(ended_)));
    if (!ended.senders.contains(sender) && !open_ids_.contains(attempt)) {
      ++outcomes_.reused;
      ask.attempt = attempt;
      ask.tokens = ended.tokens;
      return ask;
    }
  }
  ++last_request_;
  ask.attempt = {.request = {last_request_, ~last_request_}, .attempt = 1};
  return ask;
}

void HandoffModel::AskForPages() {
  const auto prefill = static_cast<size_t>(Pick(kWorkers));
  const auto decode = static_cast<size_t>(Pick(kWorkers));
  if (attempts_.size() + decodes_[decode].waiting.size() >= kMaxAttempts) return;
  Ask ask = NewAsk(prefills_[prefill].incarnation);
  ask.prefill = prefill;
  open_ids_.insert(ask.attempt);
  ask.wants_prefix = ask.tokens >= kPrefixTokens && Pick(2) == 0;
  ask.held.decode = decodes_[decode].incarnation;
  if (grants_ == Grants::kPinBeforeGrant && ask.wants_prefix && decodes_[decode].prefix_cached) {
    ++decodes_[decode].prefix_pins;
    ask.held.prefix = true;
  }
  decodes_[decode].waiting.push_back(std::move(ask));
  const size_t waiting = decodes_[decode].waiting.size();
  GrantWaiting(decode);
  if (decodes_[decode].waiting.size() == waiting) ++outcomes_.waited;
}

// In order: nobody overtakes for want of pages.
void HandoffModel::GrantWaiting(size_t index) {
  Decode& decode = decodes_[index];
  while (!decode.waiting.empty()) {
    const auto next = decode.waiting.begin() +
                      (grants_ == Grants::kPartial ? Pick(std::ssize(decode.waiting)) : 0);
    if (!TryGrant(decode, *next)) return;
    Ask ask = std::move(*next);
    decode.waiting.erase(next);
    Open(index, std::move(ask));
  }
}

bool HandoffModel::TryGrant(Decode& decode, Ask& ask) {
  const bool hit = ask.held.prefix || (ask.wants_prefix && decode.prefix_cached);
  int64_t needed = (ask.tokens + kPageTokens - 1) / kPageTokens;
  if (hit) needed -= kPrefixPages;
  if (grants_ == Grants::kPartial) {
    const int64_t more = std::min(needed - ask.held.pages, decode.pages_free);
    decode.pages_free -= std::max<int64_t>(more, 0);
    ask.held.pages += std::max<int64_t>(more, 0);
    return ask.held.pages >= needed;
  }
  if (decode.pages_free < needed && decode.prefix_cached && decode.prefix_pins == 0 && !hit) {
    decode.prefix_cached = false;
    decode.pages_free += kPrefixPages;
  }
  if (decode.pages_free < needed) return false;
  decode.pages_free -= needed;
  ask.held.pages = needed;
  if (hit && !ask.held.prefix) {
    ++decode.prefix_pins;
    ask.held.prefix = true;
  }
  return true;
}

void HandoffModel::GiveBack(Decode& decode, const Holding& held) {
  if (held.decode != decode.incarnation) return;
  if (held.prefix) --decode.prefix_pins;
  decode.pages_free += held.pages;
  if (!decode.prefix_cached && decode.pages_free >= kPrefixPages && Pick(2) == 0) {
    decode.pages_free -= kPrefixPages;
    decode.prefix_cached = true;
  }
}

void HandoffModel::Open(size_t index, Ask ask) {
  Decode& decode = decodes_[index];
  // A prefix comes with the state at its end, or without.
  Held held;
  if (ask.held.prefix) held = {.entries = kPrefixTokens, .state = Pick(2) == 0 ? kPrefixTokens : 0};
  Attempt& attempt = attempts_.emplace_back(Handoff::Options{
      .key = {.attempt = ask.attempt, .sender = ask.sender, .receiver = decode.incarnation},
      .held = held,
      .tokens = ask.tokens,
      .seed = ++last_seed_,
      .endpoint = decode.endpoint});
  attempt.prefill = ask.prefill;
  attempt.decode = index;
  attempt.held = ask.held;
  if (Pick(20) != 0) {  // else the frames come to a decode worker that knows nothing
    LandingSpec landing = attempt.handoff.landing();
    attempt.sink = std::make_unique<InterruptedSink>(this, landing.records);
    landing.records = attempt.sink.get();
    // A grant for another prompt. (An empty one sends no frame that could be rejected.)
    if (Pick(20) == 0 && ask.tokens > 0) landing.tokens = ask.tokens + 1;
    EXPECT_TRUE(decode.receiver->Expect(std::move(landing)).ok());
    attempt.expected = true;
  }
  if (ask.sender == prefills_[ask.prefill].incarnation) {
    EXPECT_TRUE(SenderOf(attempt).Open(attempt.handoff.outbound()).ok());
  } else {  // it has restarted meanwhile: its control stream is dead
    attempt.finished = true;
    attempt.handoff.outbound().on_end(absl::UnavailableError("the prefill worker is gone"));
    ReceiverOf(attempt).Abort(ask.attempt, absl::UnavailableError("the prefill worker is gone"));
  }
}

void HandoffModel::Advance(Attempt& attempt) {
  if (attempt.finished) return;
  attempt.computed += Pick(attempt.handoff.options().tokens - attempt.computed + 1);
  attempt.handoff.Advance(SenderOf(attempt), attempt.computed);
}

void HandoffModel::FinishPrompt(Attempt& attempt) {
  if (attempt.finished) return;
  attempt.finished = true;
  attempt.handoff.Finish(SenderOf(attempt));
}

void HandoffModel::DeliverLate() {
  if (late_.empty()) return;
  // Rather one whose attempt's number is in use again.
  size_t index = static_cast<size_t>(Pick(std::ssize(late_)));
  for (size_t i = 0; i < late_.size(); ++i) {
    const absl::StatusOr<FrameView> view = DecodeFrame(late_[index].second);
    if (view.ok() && open_ids_.contains(view->header.key.attempt)) break;
    index = (index + 1) % late_.size();
  }
  const auto [decode, frame] = late_[index];  // a copy: it may be pushed out meanwhile
  std::string detail;
  decodes_[decode].receiver->OnFrame(frame, &detail);
  ++outcomes_.late_frames;
}

void HandoffModel::RestartPrefill(Prefill& prefill) {
  if (prefill.sender != nullptr) {
    ++outcomes_.restarts;
    retired_ += prefill.sender->stats();
  }
  prefill.sender.reset();  // ends what is open
  prefill.incarnation = ++last_incarnation_;
  prefill.sender = std::make_unique<FrameSender>(
      Options(), WithFaults(network_.Connect(), RandomFaults(Rates(), random_()), clock_), clock_);
}

void HandoffModel::RestartDecode(Decode& decode) {
  if (decode.receiver != nullptr) ++outcomes_.restarts;
  network_.Detach(decode.endpoint);
  decode.tap.reset();
  decode.receiver.reset();  // ends what is open
  decode.incarnation = ++last_incarnation_;
  decode.receiver = MakeReceiver(&callbacks_);
  decode.tap = std::make_unique<Tap>(this, static_cast<size_t>(&decode - decodes_.data()),
                                     decode.receiver.get());
  decode.waiting.clear();
  decode.running.clear();
  decode.pages_free = kPages;
  decode.prefix_cached = false;
  decode.prefix_pins = 0;
  EXPECT_TRUE(network_.Attach(decode.endpoint, decode.tap.get()).ok());
}

HandoffModel::Attempt* HandoffModel::PickAttempt() {
  if (attempts_.empty()) return nullptr;
  return &*std::next(attempts_.begin(), Pick(static_cast<int64_t>(attempts_.size())));
}

// Drops attempts that have ended on both sides, after a look at how.
void HandoffModel::Reap() {
  for (auto it = attempts_.begin(); it != attempts_.end();) {
    const Handoff& handoff = it->handoff;
    if (!handoff.sent().has_value() || (it->expected && !handoff.received().has_value())) {
      // A decode worker notices on its control stream that the other side has given up.
      if (handoff.sent().has_value() && !handoff.sent()->ok() && Pick(4) == 0) {
        ReceiverOf(*it).Abort(handoff.attempt(), absl::UnavailableError("the sender gave up"));
      }
      ++it;
      continue;
    }
    const bool sent = handoff.sent()->ok();
    const bool received = it->expected && handoff.received()->ok();
    if (received) {
      EXPECT_EQ(handoff.Problem(), "") << "attempt " << handoff.attempt().ToString();
    }
    if (it->expected) {
      EXPECT_FALSE(sent && !received) << "acknowledged, but: " << *handoff.received();
    }
    ++(sent && received ? outcomes_.both_ok
       : received       ? outcomes_.only_receiver_ok
                        : outcomes_.none_ok);
    Decode& decode = decodes_[it->decode];
    if (received && it->held.decode == decode.incarnation) {
      decode.running.push_back(it->held);
    } else {
      GiveBack(decode, it->held);
    }
    open_ids_.erase(handoff.attempt());
    Ended& ended = ended_[handoff.attempt()];
    ended.tokens = handoff.options().tokens;
    ended.senders.insert(handoff.options().key.sender);
    while (ended_.size() > 8) {
      ended_.erase(std::next(ended_.begin(), Pick(std::ssize(ended_))));
    }
    it = attempts_.erase(it);
  }
}

void HandoffModel::Settle() {
  bool moved = true;
  while (moved) {
    moved = deliveries_.size() > 0 || callbacks_.size() > 0;
    deliveries_.RunAll();
    callbacks_.RunAll();
    for (Prefill& prefill : prefills_) moved |= prefill.sender->Step();
  }
}

void HandoffModel::Finish() {
  // Who waits gets pages when those before have given theirs back.
  for (int round = 0; round < 100; ++round) {
    for (Attempt& attempt : attempts_) FinishPrompt(attempt);
    // Held frames first, then the deadlines of those that were dropped.
    for (int i = 0; i < 2; ++i) {
      Settle();
      clock_.Advance(std::chrono::seconds(3));
    }
    Settle();
    for (Attempt& attempt : attempts_) {
      EXPECT_TRUE(attempt.handoff.sent().has_value()) << attempt.handoff.attempt().ToString();
      ReceiverOf(attempt).Abort(attempt.handoff.attempt(), absl::CancelledError("the end"));
    }
    Settle();
    Reap();
    EXPECT_TRUE(attempts_.empty()) << attempts_.size() << " attempts have not ended";
    for (size_t i = 0; i < decodes_.size(); ++i) {
      Decode& decode = decodes_[i];
      for (const Holding& held : std::exchange(decode.running, {})) GiveBack(decode, held);
      GrantWaiting(i);
    }
    if (attempts_.empty()) break;
  }
  for (const Prefill& prefill : prefills_) {
    EXPECT_EQ(prefill.sender->stats().attempts_open, 0u);
    EXPECT_EQ(prefill.sender->stats().frames_in_flight, 0u);
  }
  for (const Decode& decode : decodes_) {
    EXPECT_EQ(decode.receiver->stats().landings_open, 0u);
    EXPECT_EQ(decode.waiting.size(), 0u) << "requests wait for ever";
    EXPECT_EQ(decode.prefix_pins, 0);
    EXPECT_EQ(decode.pages_free + (decode.prefix_cached ? kPrefixPages : 0), kPages)
        << "pages are lost";
  }
}

SenderStats HandoffModel::sender_stats() const {
  SenderStats sum = retired_;
  for (const Prefill& prefill : prefills_) sum += prefill.sender->stats();
  return sum;
}

}  // namespace baton::kvtransfer
