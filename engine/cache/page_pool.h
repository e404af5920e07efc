#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton::engine {

// Which of [0, total) are free, and how many hold each of the others. Serves pages, which several
// may hold, and state slots alike; knows neither their bytes nor who holds them. Not thread-safe.
class IdPool {
 public:
  // `what` names an id in messages: "page", "slot".
  IdPool(std::string what, int64_t total);

  int64_t total() const { return static_cast<int64_t>(holders_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int32_t holders(int32_t id) const { return holders_.at(static_cast<size_t>(id)); }

  // `count` >= 0 ids with one holder each, or nothing at all when fewer are free.
  std::optional<std::vector<int32_t>> Allocate(int64_t count);
  // One more holder for each. Sharing what is free is a broken invariant (fatal).
  void Share(std::span<const int32_t> ids);
  // One holder less for each; an id that nobody holds is free. Freeing what is free, or was never
  // an id, is a broken invariant (fatal).
  void Free(std::span<const int32_t> ids);

  // Every id has as many holders as there are `owners` that name it; INTERNAL names the first that
  // has not. Owners are recounted by the caller from what is alive, never derived from this pool.
  absl::Status Audit(std::span<const std::vector<int32_t>> owners) const;

 private:
  void CheckHeld(int32_t id, const char* complaint) const;

  std::string what_;
  std::vector<int32_t> free_;     // a stack: the id freed last is warm in caches
  std::vector<int32_t> holders_;  // by id
};

}  // namespace baton::engine
