#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "common/clock.h"
#include "common/ids.h"
#include "kvtransfer/handoff_key.h"
#include "kvtransfer/handoff_records.h"
#include "kvtransfer/transport.h"

// Role: the prefill side of hand-offs. One state machine for all transports.
// Why: pages may be freed only when nothing can read them any more, whatever failed.
// Threading: all calls thread-safe and non-blocking; callbacks run on the transfer thread, without
// any lock of the sender held.
//
//   Open -> Advance* -> Finish -> (all frames accepted) -> on_end(OK)
//        any time: Cancel, a rejected frame, a dead peer -> drain what is in flight
//        -> on_end(error)
//
// Codes of on_end's error: what Cancel was given; ABORTED the receiver no longer expects the
// attempt (stale); FAILED_PRECONDITION it rejected a frame; DATA_LOSS a frame arrived corrupt too
// often; DEADLINE_EXCEEDED no answer for progress_timeout; UNAVAILABLE the peer died;
// INVALID_ARGUMENT the grant begins behind the prompt.

namespace baton::kvtransfer {

struct OutboundSpec {
  HandoffKey key;
  std::string transport{};                   // as granted
  std::string endpoint;                      // the transport's address of the receiver
  const SequenceRecords* records = nullptr;  // readable until on_end has been called
  CacheLayout layout;
  Held held = {};  // of the grant: what the receiver has is not sent
  // Exactly once. After it the sender and its transport never touch `records` again.
  std::function<void(absl::Status)> on_end;
};

struct SenderStats {
  uint64_t frames_posted = 0;  // with resends
  uint64_t frames_resent = 0;  // after a corrupt verdict
  uint64_t frames_by_verdict[kFrameVerdictCount] = {};
  uint64_t posts_failed = 0;   // completed without a verdict
  uint64_t payload_bytes = 0;  // accepted, without headers
  uint64_t attempts_ok = 0;
  uint64_t attempts_failed = 0;
  uint64_t attempts_open = 0;     // as of now
  uint64_t frames_in_flight = 0;  // as of now

  SenderStats& operator+=(const SenderStats& other);  // of another sender
};

class Sender {
 public:
  virtual ~Sender() = default;

  // ALREADY_EXISTS if the attempt is open, INVALID_ARGUMENT if the layout's records do not fit
  // frames or nobody can hold what the grant says. On an error on_end is not called.
  virtual absl::Status Open(OutboundSpec spec) = 0;
  // Positions [0, tokens) are computed: append-only records of whole pages may be sent now.
  // Unknown attempts (ended meanwhile): no effect, here and below.
  virtual void Advance(const AttemptId& attempt, int64_t tokens) = 0;
  // The prompt is computed: the sequence's state may be sent too; nothing more will change.
  virtual void Finish(const AttemptId& attempt, int64_t tokens) = 0;
  // No new frames; on_end follows once the transport is quiescent.
  virtual void Cancel(const AttemptId& attempt, absl::Status why) = 0;

  virtual SenderStats stats() const = 0;
};

struct SenderOptions {
  // Affect performance.
  int64_t send_tokens = 256;  // prefill advances are sent in whole units of so many tokens
  size_t frame_bytes = size_t{2} << 20;  // upper limit; the transport may allow less
  int attempt_frames = 16;               // in flight per attempt
  int peer_frames = 32;                  // in flight per endpoint, over all its attempts
  // Affect behaviour.
  int resends = 3;  // per frame, after corrupt verdicts
  std::chrono::nanoseconds progress_timeout = std::chrono::seconds(5);  // without any completion
};

// A sender with a transfer thread of its own. The destructor cancels what is open and waits for the
// callbacks. `clock` outlives it.
std::unique_ptr<Sender> MakeSender(const SenderOptions& options,
                                   std::unique_ptr<Transport> transport,
                                   const Clock& clock = Clock::Real());

}  // namespace baton::kvtransfer
