#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::router {

// Watches a stream of text for stop strings. Text that may be the beginning of one is held back
// until it is decided. The result does not depend on how the stream is cut: the match is the one
// that is complete first; of several complete at the same byte, the longest. One thread at a time.
class StopStringMatcher {
 public:
  struct Output {
    std::string text;             // may be shown now; ends before the stop string on a match
    std::optional<size_t> match;  // index of the stop string that was found
  };

  // InvalidArgument for an empty stop string. No stop strings: text passes through.
  static absl::StatusOr<StopStringMatcher> Create(std::vector<std::string> stop_strings);

  // Once a match was reported, further text is swallowed and reported as the same match.
  Output Push(std::string_view text);

  // Ends the stream: the text that was still held back.
  std::string Flush();

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // border[n]: longest proper prefix of text[0, n) that is a suffix
    size_t matched = 0;          // bytes of text that the stream ends with
  };

  void Advance(Pattern* pattern, char byte) const;

  std::vector<Pattern> patterns_;
  std::string held_;
  std::optional<size_t> match_;
};

}  // namespace baton::router
