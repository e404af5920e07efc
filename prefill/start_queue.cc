#include "prefill/start_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::prefill {

absl::Status StartQueue::Push(Entry entry) {
  if (waiting_.size() >= limits_.queue) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the prefill queue is full: ", waiting_.size(), " requests wait"));
  }
  waiting_tokens_ += entry.tokens;
  waiting_.push_back(std::move(entry));
  return absl::OkStatus();
}

std::list<StartQueue::Entry>::const_iterator StartQueue::Find(uint64_t id) const {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [&](const Entry& entry) { return entry.id == id; });
}

void StartQueue::Remove(uint64_t id) {
  const auto it = Find(id);
  if (it == waiting_.end()) return;
  waiting_tokens_ -= it->tokens;
  waiting_.erase(it);
}

const StartQueue::Entry* StartQueue::Next() const {
  for (const Entry& entry : waiting_) {
    const auto held = ungranted_.find(entry.decode_worker);
    if (held == ungranted_.end()) return &entry;
    if (held->second.pages + entry.pages <= limits_.ungranted_pages &&
        held->second.sequences < limits_.ungranted_sequences) {
      return &entry;
    }
  }
  return nullptr;
}

void StartQueue::Start(uint64_t id) {
  const auto it = Find(id);
  BATON_CHECK(it != waiting_.end()) << id;
  Ungranted& held = ungranted_[it->decode_worker];
  held.pages += it->pages;
  ++held.sequences;
  Remove(id);
}

void StartQueue::Settle(const Entry& entry) {
  const auto held = ungranted_.find(entry.decode_worker);
  BATON_CHECK(held != ungranted_.end() && held->second.sequences > 0) << entry.decode_worker;
  held->second.pages -= entry.pages;
  if (--held->second.sequences == 0) ungranted_.erase(held);
}

}  // namespace baton::prefill
