#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "kvtransfer/frame_buffers.h"
#include "kvtransfer/send_plan.h"
#include "kvtransfer/sender.h"

namespace baton::kvtransfer {

// The sender's state machine without a thread: whoever calls Step is the transfer thread.
// MakeSender adds one; tests step by hand.
class FrameSender : public Sender {
 public:
  FrameSender(const SenderOptions& options, std::unique_ptr<Transport> transport,
              const Clock& clock);
  // Steps until every attempt has ended, unless that is so already.
  ~FrameSender() override;

  absl::Status Open(OutboundSpec spec) override;
  void Advance(const AttemptId& attempt, int64_t tokens) override;
  void Finish(const AttemptId& attempt, int64_t tokens) override;
  void Cancel(const AttemptId& attempt, absl::Status why) override;
  SenderStats stats() const override;

  // Transfer thread. One round: completions, deadlines, ended attempts, a few frames. False when
  // there was nothing to do.
  bool Step();
  // Transfer thread. Waits until there may be something to do: a call, a wake-up of the transport,
  // or a deadline that has come closer.
  void Wait();
  // Opens nothing any more and fences what is open.
  void BeginShutdown();
  bool ShutDown() const;  // and every attempt has ended

 private:
  struct Peer {
    std::string endpoint;
    int attempts = 0;
    int in_flight = 0;
  };

  // One attempt. Changed under the lock alone. The transfer thread, which makes and ends frames,
  // reads the spec without it: that never changes, and only this thread removes an attempt.
  struct Outbound {
    Outbound(OutboundSpec s, SendPlan p, Peer* to)
        : spec(std::move(s)), plan(std::move(p)), peer(to) {}

    OutboundSpec spec;
    SendPlan plan;
    Peer* peer;
    bool ending = false;  // sends nothing more; ends when nothing is in flight
    absl::Status end;     // why, when ending
    bool fenced = false;  // what is in flight has been cancelled
    int in_flight = 0;
    Clock::TimePoint last_progress;  // a completion, or the first post after silence
    std::deque<uint64_t> resend;     // sequences of frames to be posted again
  };

  struct Frame {
    Outbound* owner;
    FrameBuffer buffer;
    size_t bytes;
    uint64_t payload_bytes;
    int resends = 0;
  };

  // A frame that is about to be posted: planned under the lock, gathered without.
  struct Draft {
    Outbound* owner = nullptr;
    uint64_t sequence = 0;
    bool again = false;  // the frame exists
    FrameHeader header;
    std::vector<Segment> segments;
  };

  bool HandleCompletions();
  void HandleCompletion(Completion completion) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleVerdict(Frame& frame, const Completion& completion)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnforceDeadlines();
  bool EndQuietAttempts();
  bool PostNext();
  bool PlanNext(Draft* draft);
  Outbound* TakeTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Gather(Draft& draft);
  bool MaySend(const Outbound& outbound) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountInFlight(Outbound& outbound, int by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndWith(Outbound& outbound, absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Outbound* Find(const AttemptId& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake();

  const SenderOptions options_;
  const Clock& clock_;

  // Before the transport, which may wake up to its last moment.
  mutable Mutex mutex_;
  CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;

  const std::unique_ptr<Transport> transport_;
  const size_t frame_bytes_;
  const int peer_frames_;

  // Transfer thread only.
  FrameBuffers buffers_;
  std::map<uint64_t, std::unique_ptr<Frame>> frames_;  // by sequence: in flight or to be resent
  uint64_t next_sequence_ = 1;

  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
  // Ordered, so that a test's run repeats.
  std::map<AttemptId, std::unique_ptr<Outbound>> open_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  std::deque<Outbound*> turns_ ABSL_GUARDED_BY(mutex_);  // every open attempt; the front sends next
  SenderStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::kvtransfer
