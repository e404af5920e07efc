#include "cli/event_stream.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace baton::cli {

bool EventStreamParser::Feed(absl::string_view bytes,
                             const std::function<bool(absl::string_view data)>& on_event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    absl::StrAppend(&line_, bytes.substr(0, end));
    if (too_large()) return false;
    if (end == absl::string_view::npos) return true;
    bytes.remove_prefix(end + 1);

    absl::string_view line = absl::StripSuffix(line_, "\r");
    if (line.empty() && has_data_) {
      if (!on_event(data_)) return false;
      data_.clear();
      has_data_ = false;
    } else if (absl::ConsumePrefix(&line, "data:")) {
      absl::ConsumePrefix(&line, " ");
      absl::StrAppend(&data_, has_data_ ? "\n" : "", line);
      has_data_ = true;
    }
    line_.clear();
  }
  return true;
}

}  // namespace baton::cli
