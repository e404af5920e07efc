#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton::engine {

// Which of [0, total) are free. Serves pages and state slots alike; knows neither their bytes nor
// who owns them. Not thread-safe.
class IdPool {
 public:
  // `what` names an id in messages: "page", "slot".
  IdPool(std::string what, int64_t total);

  int64_t total() const { return static_cast<int64_t>(is_free_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }

  // `count` >= 0 ids, or nothing at all when fewer are free.
  std::optional<std::vector<int32_t>> Allocate(int64_t count);
  // Freeing what is free, or was never an id, is a broken invariant (fatal).
  void Free(std::span<const int32_t> ids);

  // Every id is either free or held by exactly one of `owners`; INTERNAL names the first that is
  // not. Owners are recounted by the caller from what is alive, never derived from this pool.
  absl::Status Audit(std::span<const std::vector<int32_t>> owners) const;

 private:
  std::string what_;
  std::vector<int32_t> free_;  // a stack: the id freed last is warm in caches
  std::vector<bool> is_free_;
};

}  // namespace baton::engine
