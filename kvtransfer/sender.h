#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "common/ids.h"
#include "kvtransfer/transport.h"

// Role: the prefill side of hand-offs. One state machine for all transports.
// Why: pages may be freed only when nothing can read them any more, whatever failed.
// Threading: all calls thread-safe and non-blocking; callbacks run on the transfer thread, without
// any lock of the sender held.
//
//   Open -> Advance* -> Finish -> (all frames accepted) -> on_end(OK)
//        any time: Cancel, a rejected frame, a dead peer -> drain what is in flight -> on_end(error)

namespace baton::kvtransfer {

struct HandoffKey {
  AttemptId attempt;
  Incarnation sender = 0;
  Incarnation receiver = 0;

  friend bool operator==(const HandoffKey&, const HandoffKey&) = default;
};

struct OutboundSpec {
  HandoffKey key;
  std::string endpoint;                    // the transport's address of the receiver
  const SequenceRecords* records = nullptr;  // readable until on_end has been called
  CacheLayout layout;
  int64_t first_token = 0;                 // of the grant: earlier append-only records are not sent
  // Exactly once. After it the sender and its transport never touch `records` again.
  std::function<void(absl::Status)> on_end;
};

class Sender {
 public:
  virtual ~Sender() = default;

  // ALREADY_EXISTS if the attempt is open. On an error on_end is not called.
  virtual absl::Status Open(OutboundSpec spec) = 0;
  // Positions [0, tokens) are computed: append-only records of whole pages may be sent now.
  virtual void Advance(const AttemptId& attempt, int64_t tokens) = 0;
  // The prompt is computed: the sequence's state may be sent too; nothing more will change.
  virtual void Finish(const AttemptId& attempt, int64_t tokens) = 0;
  // No new frames; on_end follows once the transport is quiescent. Unknown attempts: no effect.
  virtual void Cancel(const AttemptId& attempt, absl::Status why) = 0;
};

}  // namespace baton::kvtransfer
