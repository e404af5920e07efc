#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

// Counts pages by owner when several may hold the same: each counts once, for whoever is asked
// about first. So those who hold pages are counted in the order in which they would keep them.
class PageCensus {
 public:
  explicit PageCensus(int64_t pages) : seen_(static_cast<size_t>(pages), false) {}

  // How many of `pages` have not been counted before.
  int64_t Count(std::span<const int32_t> pages) {
    int64_t fresh = 0;
    for (const int32_t page : pages) {
      auto seen = seen_[static_cast<size_t>(page)];
      if (!seen) ++fresh;
      seen = true;
    }
    return fresh;
  }

 private:
  std::vector<bool> seen_;
};

}  // namespace baton::engine
