#include "tests/kvtransfer/handoff_model.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace baton::kvtransfer {
namespace {

constexpr size_t kWorkers = 2;  // of each kind
constexpr size_t kMaxAttempts = 10;
constexpr int64_t kMaxTokens = 700;

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

void AddTo(SenderStats& sum, const SenderStats& stats) {
  sum.frames_posted += stats.frames_posted;
  sum.frames_resent += stats.frames_resent;
  for (int i = 0; i < kFrameVerdictCount; ++i) {
    sum.frames_by_verdict[i] += stats.frames_by_verdict[i];
  }
  sum.posts_failed += stats.posts_failed;
  sum.attempts_ok += stats.attempts_ok;
  sum.attempts_failed += stats.attempts_failed;
}

}  // namespace

HandoffModel::HandoffModel(uint64_t seed) : random_(seed), decodes_(kWorkers), prefills_(kWorkers) {
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
  Attempt* const attempt = PickAttempt();
  if (dice < 30) {
    if (attempts_.size() < kMaxAttempts) OpenAttempt();
  } else if (dice < 80) {
    if (attempt != nullptr) Advance(*attempt);
  } else if (dice < 110) {
    if (attempt != nullptr) FinishPrompt(*attempt);
  } else if (dice < 113) {
    if (attempt != nullptr) {
      SenderOf(*attempt).Cancel(attempt->handoff.attempt(), absl::CancelledError("dice"));
    }
  } else if (dice < 116) {
    if (attempt != nullptr) {
      ReceiverOf(*attempt).Abort(attempt->handoff.attempt(), absl::CancelledError("dice"));
    }
  } else if (dice < 117) {
    RestartPrefill(prefills_[static_cast<size_t>(Pick(kWorkers))]);
  } else if (dice < 118) {
    RestartDecode(decodes_[static_cast<size_t>(Pick(kWorkers))]);
  } else if (dice < 150) {
    clock_.Advance(std::chrono::milliseconds(Pick(60)));
  } else if (dice < 500) {
    if (deliveries_.size() > 0) {
      deliveries_.RunAt(static_cast<size_t>(Pick(static_cast<int64_t>(deliveries_.size()))));
    }
  } else if (dice < 600) {
    if (callbacks_.size() > 0) callbacks_.RunAt(0);
  } else {
    prefills_[static_cast<size_t>(Pick(kWorkers))].sender->Step();
  }
}

void HandoffModel::OpenAttempt() {
  const auto prefill = static_cast<size_t>(Pick(kWorkers));
  const auto decode = static_cast<size_t>(Pick(kWorkers));
  const int64_t tokens = Pick(kMaxTokens);
  const int64_t first_token = Pick(2) == 0 ? 0 : Pick(tokens + 1) / 128 * 128;
  ++last_request_;
  Attempt& attempt = attempts_.emplace_back(Handoff::Options{
      .key = {.attempt = {.request = {last_request_, ~last_request_}, .attempt = 1},
              .sender = prefills_[prefill].incarnation,
              .receiver = decodes_[decode].incarnation},
      .first_token = first_token,
      .tokens = tokens,
      .seed = last_request_,
      .endpoint = decodes_[decode].endpoint});
  attempt.prefill = prefill;
  attempt.decode = decode;
  if (Pick(20) != 0) {  // else the frames come to a decode worker that knows nothing
    LandingSpec landing = attempt.handoff.landing();
    // A grant for another prompt. (An empty one sends no frame that could be rejected.)
    if (Pick(20) == 0 && tokens > 0) landing.tokens = tokens + 1;
    EXPECT_TRUE(ReceiverOf(attempt).Expect(std::move(landing)).ok());
    attempt.expected = true;
  }
  EXPECT_TRUE(SenderOf(attempt).Open(attempt.handoff.outbound()).ok());
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

void HandoffModel::RestartPrefill(Prefill& prefill) {
  if (prefill.sender != nullptr) {
    ++outcomes_.restarts;
    AddTo(retired_, prefill.sender->stats());
  }
  prefill.sender.reset();  // ends what is open
  prefill.incarnation = ++last_incarnation_;
  prefill.sender = std::make_unique<FrameSender>(
      Options(), WithFaults(network_.Connect(), RandomFaults(Rates(), random_()), clock_), clock_);
}

void HandoffModel::RestartDecode(Decode& decode) {
  if (decode.receiver != nullptr) ++outcomes_.restarts;
  network_.Detach(decode.endpoint);
  decode.receiver.reset();  // ends what is open
  decode.incarnation = ++last_incarnation_;
  decode.receiver = MakeReceiver(&callbacks_);
  EXPECT_TRUE(network_.Attach(decode.endpoint, decode.receiver.get()).ok());
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
  for (const Prefill& prefill : prefills_) {
    EXPECT_EQ(prefill.sender->stats().attempts_open, 0u);
    EXPECT_EQ(prefill.sender->stats().frames_in_flight, 0u);
  }
  for (const Decode& decode : decodes_) EXPECT_EQ(decode.receiver->stats().landings_open, 0u);
}

SenderStats HandoffModel::sender_stats() const {
  SenderStats sum = retired_;
  for (const Prefill& prefill : prefills_) AddTo(sum, prefill.sender->stats());
  return sum;
}

}  // namespace baton::kvtransfer
