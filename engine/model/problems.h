#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace baton::engine {

// Complaints about one input, gathered so that a user sees all of them at once; the message stays
// readable however many there are.
class Problems {
 public:
  void Add(std::string problem) {
    if (++count_ <= kShown) shown_.push_back(std::move(problem));
  }

  void Add(const Problems& more) {
    for (const std::string& problem : more.shown_) {
      if (shown_.size() < kShown) shown_.push_back(problem);
    }
    count_ += more.count_;
  }

  bool empty() const { return count_ == 0; }

  // InvalidArgument "what: first; second; ... and 3 more", or OK when there are none.
  absl::Status ToStatus(absl::string_view what) const {
    if (empty()) return absl::OkStatus();
    std::string message = absl::StrCat(what, ": ", absl::StrJoin(shown_, "; "));
    if (count_ > shown_.size()) {
      absl::StrAppend(&message, "; and ", count_ - shown_.size(), " more");
    }
    return absl::InvalidArgumentError(message);
  }

 private:
  static constexpr size_t kShown = 20;

  std::vector<std::string> shown_;
  size_t count_ = 0;
};

}  // namespace baton::engine
