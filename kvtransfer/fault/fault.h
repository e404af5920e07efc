#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What can be done on purpose to a frame, or to a message of a control stream, and which of them it
// is done to. Pure.

namespace baton::kvtransfer {

struct Fault {
  enum class Kind {
    kNone,
    kDrop,        // not delivered; a frame: no answer until cancelled
    kDropAnswer,  // frames: delivered, no answer until cancelled
    kDelay,       // held for `duration`
    kReorder,     // held until another has gone the same way, or for `duration`
    kDuplicate,   // delivered twice; of a frame the first answer counts
    kCorrupt,     // one bit is flipped; `bit` counts from the start, modulo the size
    kStall,       // from this one on nothing goes this way for `duration`
    kCut,         // the connection breaks, with all that is outstanding on it: UNAVAILABLE
    kFail,        // this one alone: a frame is UNAVAILABLE, undelivered; a stream ends INTERNAL
  };
  Kind kind = Kind::kNone;
  std::chrono::nanoseconds duration{0};
  uint64_t bit = 0;
};

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
  double fail = 0;
  std::chrono::nanoseconds max_duration = std::chrono::milliseconds(100);
};

struct NthFault {
  int64_t n = 1;          // counted from 1 over all, or over those named `message`
  std::string message{};  // of a control stream: grant, finished, ...; empty: any
  Fault fault{};
};

// The faults of one plane.
struct PlaneFaults {
  FaultRates rates{};
  std::vector<NthFault> at{};  // win over the rates
  uint64_t seed = 1;
  bool active = false;  // whether there is anything to do
};

// Decides what happens to the next one. The same plane yields the same faults in the same order.
// Not thread-safe.
class FaultDice {
 public:
  explicit FaultDice(PlaneFaults plane) : plane_(std::move(plane)), random_(plane_.seed) {}

  Fault Next(std::string_view message = {});

 private:
  Fault Roll();

  PlaneFaults plane_;
  std::mt19937_64 random_;
  int64_t seen_ = 0;
  std::map<std::string, int64_t, std::less<>> seen_by_message_;
};

}  // namespace baton::kvtransfer
