#include "common/error_list.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace baton {

absl::Status ErrorList::ToStatus() const {
  if (errors_.empty()) return absl::OkStatus();
  if (errors_.size() == 1) return errors_[0];
  std::string message = absl::StrCat(errors_.size(), " errors:");
  for (const absl::Status& error : errors_) {
    // A list within the list is further in.
    absl::StrAppend(&message, "\n  ", absl::StrReplaceAll(error.message(), {{"\n", "\n  "}}));
  }
  return absl::Status(errors_[0].code(), message);
}

}  // namespace baton
