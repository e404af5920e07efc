#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/token_logprobs.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/sampling_params.h"
#include "kvtransfer/handoff_records.h"

// What the decoder needs of prefill workers, without the wire.

namespace baton::decode {

struct Peer {
  std::string address;
  Incarnation incarnation = 0;  // 0: not known
};

struct PrefillDone {
  int32_t first_token = 0;
  std::optional<TokenLogprobs> logprobs = {};  // of that, if they were asked for
  int64_t cached_tokens = 0;                   // of the prompt: found there, not computed
  Clock::Duration queued{0};
  Clock::Duration computed{0};
};

// What comes back from one attempt at one prefill worker, in this order, on any thread, one call at
// a time. None may block.
struct PrefillEvents {
  std::function<void(Incarnation)> on_accepted;  // by this process
  std::function<void()> on_started;
  std::function<void(const PrefillDone&)> on_finished;
  // Exactly once, last. Without on_accepted before it, nothing was started there.
  std::function<void(absl::Status)> on_end;
};

struct PrefillOpen {
  AttemptId attempt;
  std::shared_ptr<const std::vector<int32_t>> prompt;
  SamplingParams sampling;
  std::optional<Clock::Duration> timeout = {};  // of the attempt, if it is limited
};

// The control stream of one attempt. Thread-safe, non-blocking, to no effect after on_end.
class PrefillCall {
 public:
  virtual ~PrefillCall() = default;
  virtual void Grant(const kvtransfer::Held& held) = 0;
  // Every byte is verified: the prefill worker may forget the attempt.
  virtual void Received() = 0;
  virtual void Cancel() = 0;
  // As agreed with that worker, once it has accepted: how records come here.
  virtual std::string transport() const = 0;
};

class PrefillClient {
 public:
  virtual ~PrefillClient() = default;
  // Never blocks; failures come by on_end. The events are kept until on_end has returned.
  virtual std::shared_ptr<PrefillCall> Open(const Peer& peer, PrefillOpen open,
                                            PrefillEvents events) = 0;
};

}  // namespace baton::decode
