#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <random>
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
// hand-offs open, advance, finish, are cancelled or aborted, frames arrive in any order, workers
// restart at the same address, time passes. Every invariant is checked on the way: nothing is read
// or written outside of what is granted or after the end, every end comes once, what ends well has
// the right bytes, and in the end nothing is left.
class HandoffModel {
 public:
  explicit HandoffModel(uint64_t seed);
  ~HandoffModel();

  void Run(int64_t steps);
  // Ends everything; then nothing may be left.
  void Finish();

  struct Outcomes {
    int64_t both_ok = 0;
    int64_t only_receiver_ok = 0;  // answers were lost
    int64_t none_ok = 0;
    int64_t restarts = 0;
  };
  const Outcomes& outcomes() const { return outcomes_; }
  SenderStats sender_stats() const;

 private:
  struct Prefill {
    Incarnation incarnation = 0;
    std::unique_ptr<FrameSender> sender;
  };
  struct Decode {
    std::string endpoint;
    Incarnation incarnation = 0;
    std::unique_ptr<Receiver> receiver;
  };
  struct Attempt {
    explicit Attempt(Handoff::Options options) : handoff(std::move(options)) {}
    Handoff handoff;
    size_t prefill = 0;
    size_t decode = 0;
    int64_t computed = 0;
    bool finished = false;
    bool expected = false;  // the receiver was told
  };

  void Step();
  void OpenAttempt();
  void Advance(Attempt& attempt);
  void FinishPrompt(Attempt& attempt);
  void RestartPrefill(Prefill& prefill);
  void RestartDecode(Decode& decode);
  void Settle();
  void Reap();
  Sender& SenderOf(Attempt& attempt) { return *prefills_[attempt.prefill].sender; }
  Receiver& ReceiverOf(Attempt& attempt) { return *decodes_[attempt.decode].receiver; }
  int64_t Pick(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  Attempt* PickAttempt();

  std::mt19937_64 random_;
  testing::FakeClock clock_;
  std::list<Attempt> attempts_;
  testing::ManualExecutor callbacks_;
  testing::ManualExecutor deliveries_;
  LoopbackNetwork network_{&deliveries_};
  std::vector<Decode> decodes_;
  std::vector<Prefill> prefills_;
  Incarnation last_incarnation_ = 0;
  uint64_t last_request_ = 0;
  Outcomes outcomes_;
  SenderStats retired_;  // of senders that were restarted
};

}  // namespace baton::kvtransfer
