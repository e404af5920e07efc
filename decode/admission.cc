#include "decode/admission.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::decode {

absl::Status Admission::Enter() {
  if (waiting_ >= limits_.waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the decode queue is full: ", waiting_, " requests wait"));
  }
  ++waiting_;
  return absl::OkStatus();
}

void Admission::Leave() {
  BATON_CHECK(waiting_ > 0);
  --waiting_;
}

size_t Admission::Assign(const std::vector<std::string>& candidates, size_t from) {
  for (size_t i = from; i < candidates.size(); ++i) {
    size_t& waiting = per_prefill_[candidates[i]];
    if (waiting < limits_.waiting_per_prefill) {
      ++waiting;
      return i;
    }
  }
  return candidates.size();
}

void Admission::Unassign(const std::string& prefill_worker) {
  const auto it = per_prefill_.find(prefill_worker);
  BATON_CHECK(it != per_prefill_.end() && it->second > 0) << prefill_worker;
  if (--it->second == 0) per_prefill_.erase(it);
}

}  // namespace baton::decode
