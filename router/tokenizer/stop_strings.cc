#include "router/tokenizer/stop_strings.h"

#include <algorithm>
#include <utility>

namespace baton::router {
namespace {

// The failure function of Knuth, Morris and Pratt.
std::vector<size_t> Borders(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  for (size_t n = 2; n <= text.size(); ++n) {
    size_t length = border[n - 1];
    while (length > 0 && text[length] != text[n - 1]) length = border[length];
    border[n] = text[length] == text[n - 1] ? length + 1 : 0;
  }
  return border;
}

}  // namespace

absl::StatusOr<StopStringMatcher> StopStringMatcher::Create(std::vector<std::string> stop_strings) {
  StopStringMatcher matcher;
  for (std::string& text : stop_strings) {
    if (text.empty()) return absl::InvalidArgumentError("a stop string is empty");
    Pattern pattern;
    pattern.border = Borders(text);
    pattern.text = std::move(text);
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

void StopStringMatcher::Advance(Pattern* pattern, char byte) const {
  size_t& matched = pattern->matched;
  while (matched > 0 && pattern->text[matched] != byte) matched = pattern->border[matched];
  if (pattern->text[matched] == byte) ++matched;
}

StopStringMatcher::Output StopStringMatcher::Push(std::string_view text) {
  if (match_) return {.text = {}, .match = match_};
  size_t longest = 0;  // bytes at the end of the stream that may begin a stop string
  for (size_t i = 0; i < text.size(); ++i) {
    longest = 0;
    for (size_t p = 0; p < patterns_.size(); ++p) {
      Pattern& pattern = patterns_[p];
      Advance(&pattern, text[i]);
      longest = std::max(longest, pattern.matched);
      if (pattern.matched == pattern.text.size() &&
          (!match_ || pattern.matched > patterns_[*match_].text.size())) {
        match_ = p;
      }
    }
    if (match_) {
      held_.append(text.substr(0, i + 1));
      held_.resize(held_.size() - patterns_[*match_].text.size());
      return {.text = std::exchange(held_, {}), .match = match_};
    }
  }
  if (text.empty()) return {};
  held_.append(text);
  std::string ready = held_.substr(0, held_.size() - longest);
  held_.erase(0, ready.size());
  return {.text = std::move(ready), .match = std::nullopt};
}

std::string StopStringMatcher::Flush() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace baton::router
