#include "common/error_list.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

constexpr absl::string_view kPieces = "baton/errors";  // payload of a list: messages, each a line

}  // namespace

void ErrorList::Add(const absl::Status& error) {
  if (error.ok()) return;
  const absl::optional<absl::Cord> pieces = error.GetPayload(kPieces);
  if (!pieces.has_value()) {
    errors_.push_back(error);
    return;
  }
  const std::string text(*pieces);
  for (const absl::string_view piece : absl::StrSplit(text, '\n')) {
    errors_.emplace_back(error.code(), piece);
  }
}

absl::Status ErrorList::ToStatus() const {
  if (errors_.empty()) return absl::OkStatus();
  if (errors_.size() == 1) return errors_[0];
  const auto message = [](std::string* out, const absl::Status& error) {
    absl::StrAppend(out, error.message());
  };
  absl::Status list(errors_[0].code(), absl::StrCat(errors_.size(), " errors:\n  ",
                                                    absl::StrJoin(errors_, "\n  ", message)));
  list.SetPayload(kPieces, absl::Cord(absl::StrJoin(errors_, "\n", message)));
  return list;
}

}  // namespace baton
