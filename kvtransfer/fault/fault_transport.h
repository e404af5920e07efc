#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/clock.h"
#include "kvtransfer/transport.h"

// Role: a decorator that does to frames what networks, peers and memory do to them.
// Why: every failure is produced on purpose, for any transport, without a line in it.
// Threading: as transport.h says. Held frames are released by Poll.

namespace baton::kvtransfer {

struct Fault {
  enum class Kind {
    kNone,
    kDrop,        // not delivered, no answer until cancelled
    kDropAnswer,  // delivered, no answer until cancelled
    kDelay,       // held for `duration`
    kReorder,     // held until another frame has gone to the endpoint, or for `duration`
    kDuplicate,   // delivered twice; the first answer counts
    kCorrupt,     // one bit is flipped; `bit` counts from the start of the frame, modulo its size
    kStall,       // from this frame on the endpoint hears nothing for `duration`
    kCut,         // the connection breaks: all that is outstanding at the endpoint is UNAVAILABLE
  };
  Kind kind = Kind::kNone;
  std::chrono::nanoseconds duration{0};
  uint64_t bit = 0;
};

// Asked once for every post, in order.
using FaultPlan = std::function<Fault(const PostRequest& request)>;

// Probabilities of each kind, together at most 1; durations are uniform up to `max_duration`.
struct FaultRates {
  double drop = 0;
  double drop_answer = 0;
  double delay = 0;
  double reorder = 0;
  double duplicate = 0;
  double corrupt = 0;
  double stall = 0;
  double cut = 0;
  std::chrono::nanoseconds max_duration = std::chrono::milliseconds(100);
};

// The same seed and rates yield the same faults in the same order.
FaultPlan RandomFaults(const FaultRates& rates, uint64_t seed);

// `clock` outlives the transport.
std::unique_ptr<Transport> WithFaults(std::unique_ptr<Transport> transport, FaultPlan plan,
                                      const Clock& clock = Clock::Real());

}  // namespace baton::kvtransfer
