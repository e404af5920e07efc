#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton::router {

// Finds added tokens in text: the leftmost, and of those that start there the longest. A byte trie;
// a search costs at most text x longest token. Immutable once filled; any thread may search.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0;  // byte offset
    size_t length = 0;
    int32_t id = 0;
  };

  // Precondition: `content` is not empty and was not added before.
  void Add(std::string_view content, int32_t id);

  // First match that starts at or after `pos`.
  std::optional<Match> Find(std::string_view text, size_t pos) const;

  bool empty() const { return ids_.size() == 1; }

 private:
  static constexpr int32_t kNone = -1;

  std::array<bool, 256> starts_{};                    // first bytes of the tokens
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // node << 8 | byte -> node; 0 is the root
  std::vector<int32_t> ids_ = {kNone};                // per node: the token that ends there
};

}  // namespace baton::router
