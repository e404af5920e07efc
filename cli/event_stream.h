#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton::cli {

// Takes the bytes of a text/event-stream as they come, hands out the data of each complete event.
// Other fields than data, and comments, are skipped.
class EventStreamParser {
 public:
  // `max_bytes` is all that is kept of one event and of the line under way.
  explicit EventStreamParser(size_t max_bytes) : max_bytes_(max_bytes) {}

  // False as soon as `on_event` returns false, or an event is too large; what follows is dropped.
  bool Feed(absl::string_view bytes, const std::function<bool(absl::string_view data)>& on_event);
  bool too_large() const { return line_.size() + data_.size() > max_bytes_; }

 private:
  const size_t max_bytes_;
  std::string line_;  // received so far, of a line not yet ended
  std::string data_;
  bool has_data_ = false;
};

}  // namespace baton::cli
