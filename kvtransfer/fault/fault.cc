#include "kvtransfer/fault/fault.h"

#include <algorithm>
#include <utility>

namespace baton::kvtransfer {

Fault FaultDice::Next(std::string_view message) {
  const Fault rolled = Roll();
  ++seen_;
  const int64_t seen_of_kind = ++seen_by_message_[std::string(message)];
  for (const NthFault& nth : plane_.at) {
    if (nth.message.empty() ? nth.n == seen_ : nth.message == message && nth.n == seen_of_kind) {
      return nth.fault;
    }
  }
  return rolled;
}

Fault FaultDice::Roll() {
  using Kind = Fault::Kind;
  const FaultRates& rates = plane_.rates;
  const std::pair<Kind, double> kinds[] = {
      {Kind::kDrop, rates.drop},           {Kind::kDropAnswer, rates.drop_answer},
      {Kind::kDelay, rates.delay},         {Kind::kReorder, rates.reorder},
      {Kind::kDuplicate, rates.duplicate}, {Kind::kCorrupt, rates.corrupt},
      {Kind::kStall, rates.stall},         {Kind::kCut, rates.cut},
      {Kind::kFail, rates.fail},
  };
  Fault fault;
  double roll = std::uniform_real_distribution<double>(0, 1)(random_);
  for (const auto& [kind, rate] : kinds) {
    roll -= rate;
    if (roll >= 0) continue;
    fault.kind = kind;
    break;
  }
  // Drawn whatever the kind, so that a rate changes the kinds and not the rest of the sequence.
  const auto longest = static_cast<uint64_t>(rates.max_duration.count());
  fault.duration = std::chrono::nanoseconds(1 + random_() % std::max<uint64_t>(longest, 1));
  fault.bit = random_();
  return fault;
}

}  // namespace baton::kvtransfer
