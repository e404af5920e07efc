#include "router/tokenizer/added_tokens.h"

namespace baton::router {
namespace {

uint64_t ChildKey(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

void AddedTokenMatcher::Add(std::string_view content, int32_t id) {
  starts_[static_cast<uint8_t>(content.front())] = true;
  uint32_t node = 0;
  for (const char byte : content) {
    const auto [it, is_new] =
        children_.emplace(ChildKey(node, byte), static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(kNone);
    node = it->second;
  }
  ids_[node] = id;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::Find(std::string_view text,
                                                                size_t pos) const {
  for (size_t begin = pos; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto it = children_.find(ChildKey(node, text[i]));
      if (it == children_.end()) break;
      node = it->second;
      if (ids_[node] != kNone) longest = Match{begin, i + 1 - begin, ids_[node]};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace baton::router
