#include "kvtransfer/sender_switch.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::kvtransfer {

absl::Status SenderSwitch::Open(OutboundSpec spec) {
  const auto it = ways_.find(spec.transport);
  if (it == ways_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("transport \"", spec.transport, "\" is not configured"));
  }
  const Way& way = it->second;
  if (way.endpoint != nullptr) spec.endpoint = way.endpoint(spec.key.receiver);
  return way.sender->Open(std::move(spec));
}

void SenderSwitch::Advance(const AttemptId& attempt, int64_t tokens) {
  for (const auto& [name, way] : ways_) way.sender->Advance(attempt, tokens);
}

void SenderSwitch::Finish(const AttemptId& attempt, int64_t tokens) {
  for (const auto& [name, way] : ways_) way.sender->Finish(attempt, tokens);
}

void SenderSwitch::Cancel(const AttemptId& attempt, absl::Status why) {
  for (const auto& [name, way] : ways_) way.sender->Cancel(attempt, why);
}

SenderStats SenderSwitch::stats() const {
  SenderStats sum;
  for (const auto& [name, way] : ways_) sum += way.sender->stats();
  return sum;
}

}  // namespace baton::kvtransfer
