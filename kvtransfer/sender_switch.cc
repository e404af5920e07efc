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
  for (const auto& [name, way] : ways_) {
    const SenderStats stats = way.sender->stats();
    sum.frames_posted += stats.frames_posted;
    sum.frames_resent += stats.frames_resent;
    for (int i = 0; i < kFrameVerdictCount; ++i) {
      sum.frames_by_verdict[i] += stats.frames_by_verdict[i];
    }
    sum.posts_failed += stats.posts_failed;
    sum.payload_bytes += stats.payload_bytes;
    sum.attempts_ok += stats.attempts_ok;
    sum.attempts_failed += stats.attempts_failed;
    sum.attempts_open += stats.attempts_open;
    sum.frames_in_flight += stats.frames_in_flight;
  }
  return sum;
}

}  // namespace baton::kvtransfer
