#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kvtransfer/executor.h"
#include "kvtransfer/fault/fault_transport.h"
#include "kvtransfer/frame_sender.h"
#include "kvtransfer/loopback/loopback.h"
#include "tests/kvtransfer/handoff.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/manual_executor.h"

namespace baton::kvtransfer {

// Two prefill and two decode workers, faulty transports, and a dice that decides what happens next:
// requests wait for pages, hand-offs open, advance, finish, are cancelled or aborted, also in the
// middle of a frame being written, frames arrive in any order, some of them long after their
// attempt, whose number may be in use again by another process; workers restart at the same
// address, time passes. Every invariant is checked on the way: nothing is read or written outside
// of what is granted or after the end, every end comes once, what ends well has the right bytes,
// nobody waits for ever, and in the end nothing is left.
class HandoffModel {
 public:
  // How a decode worker gives out pages. Only the first is right: the others are here to show that
  // the model finds them.
  enum class Grants {
    kWholeAtOnce,     // all pages or none; a cached prefix is held from the grant on
    kPartial,         // what is free, and the rest when there is more
    kPinBeforeGrant,  // a cached prefix is held while the request still waits
  };

  explicit HandoffModel(uint64_t seed, Grants grants = Grants::kWholeAtOnce);
  ~HandoffModel();

  void Run(int64_t steps);
  // Ends everything; then nothing may be left.
  void Finish();

  struct Outcomes {
    int64_t both_ok = 0;
    int64_t only_receiver_ok = 0;  // answers were lost
    int64_t none_ok = 0;
    int64_t restarts = 0;
    int64_t waited = 0;       // requests that did not get their pages at once
    int64_t late_frames = 0;  // delivered again, long after
    int64_t reused = 0;       // attempt numbers
  };
  const Outcomes& outcomes() const { return outcomes_; }
  SenderStats sender_stats() const;

 private:
  // What an attempt holds of a decode worker's cache.
  struct Holding {
    Incarnation decode = 0;  // a restart forgets it
    int64_t pages = 0;
    bool prefix = false;  // pinned
  };
  // A request that waits for pages.
  struct Ask {
    AttemptId attempt;
    size_t prefill = 0;
    Incarnation sender = 0;
    int64_t tokens = 0;
    bool wants_prefix = false;
    Holding held{};
  };
  struct Prefill {
    Incarnation incarnation = 0;
    std::unique_ptr<FrameSender> sender;
  };
  struct Decode {
    std::string endpoint;
    Incarnation incarnation = 0;
    std::unique_ptr<Receiver> receiver;
    std::unique_ptr<Receiver> tap;  // what the network delivers to
    std::deque<Ask> waiting;
    std::deque<Holding> running;
    int64_t pages_free = 0;
    bool prefix_cached = false;  // takes kPrefixPages
    int64_t prefix_pins = 0;
  };
  class Tap;
  class InterruptedSink;
  struct Attempt {
    explicit Attempt(Handoff::Options options) : handoff(std::move(options)) {}
    Handoff handoff;
    std::unique_ptr<SequenceRecords> sink;
    size_t prefill = 0;
    size_t decode = 0;
    Holding held{};
    int64_t computed = 0;
    bool finished = false;
    bool expected = false;  // the receiver was told
  };

  void Step();
  // What may happen while a frame is being written.
  void StepInside(int64_t dice);
  void AskForPages();
  void GrantWaiting(size_t decode);
  bool TryGrant(Decode& decode, Ask& ask);
  void Open(size_t decode, Ask ask);
  void GiveBack(Decode& decode, const Holding& held);
  void Advance(Attempt& attempt);
  void FinishPrompt(Attempt& attempt);
  void DeliverLate();
  void RestartPrefill(Prefill& prefill);
  void RestartDecode(Decode& decode);
  void Settle();
  void Reap();
  Ask NewAsk(Incarnation sender);
  Sender& SenderOf(Attempt& attempt) { return *prefills_[attempt.prefill].sender; }
  Receiver& ReceiverOf(Attempt& attempt) { return *decodes_[attempt.decode].receiver; }
  int64_t Pick(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  Attempt* PickAttempt();

  std::mt19937_64 random_;
  const Grants grants_;
  testing::FakeClock clock_;
  std::list<Attempt> attempts_;
  testing::ManualExecutor callbacks_;
  testing::ManualExecutor deliveries_;
  LoopbackNetwork network_{&deliveries_};
  std::vector<Decode> decodes_;
  std::vector<Prefill> prefills_;
  Incarnation last_incarnation_ = 0;
  uint64_t last_request_ = 0;
  uint64_t last_seed_ = 0;
  std::set<AttemptId> open_ids_;
  // Attempts that have ended: their prompts, and who has sent them.
  struct Ended {
    int64_t tokens = 0;
    std::set<Incarnation> senders;
  };
  std::map<AttemptId, Ended> ended_;
  std::deque<std::pair<size_t, std::vector<std::byte>>> late_;  // decode worker, frame
  bool inside_ = false;
  Outcomes outcomes_;
  SenderStats retired_;  // of senders that were restarted
};

}  // namespace baton::kvtransfer
