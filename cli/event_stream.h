#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton::cli {

// Takes the bytes of a text/event-stream as they come, hands out the data of each complete event.
// Other fields than data, and comments, are skipped.
class EventStreamParser {
 public:
  // False as soon as `on_event` returns false; what follows is dropped.
  bool Feed(absl::string_view bytes, const std::function<bool(absl::string_view data)>& on_event);

 private:
  std::string line_;  // received so far, of a line not yet ended
  std::string data_;
  bool has_data_ = false;
};

}  // namespace baton::cli
