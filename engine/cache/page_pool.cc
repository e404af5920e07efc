#include "engine/cache/page_pool.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::engine {

IdPool::IdPool(std::string what, int64_t total)
    : what_(std::move(what)),
      free_(static_cast<size_t>(total)),
      holders_(static_cast<size_t>(total), 0) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // lowest ids leave first
}

std::optional<std::vector<int32_t>> IdPool::Allocate(int64_t count) {
  BATON_CHECK(count >= 0) << "allocating " << count << " " << what_ << " ids";
  if (count > free()) return std::nullopt;
  std::vector<int32_t> ids(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - static_cast<size_t>(count));
  for (const int32_t id : ids) holders_[static_cast<size_t>(id)] = 1;
  return ids;
}

void IdPool::CheckHeld(int32_t id, const char* complaint) const {
  BATON_CHECK(id >= 0 && id < total()) << what_ << " " << id << " of " << total();
  BATON_CHECK(holders_[static_cast<size_t>(id)] > 0) << what_ << " " << id << complaint;
}

void IdPool::Share(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    CheckHeld(id, " is free and cannot be shared");
    ++holders_[static_cast<size_t>(id)];
  }
}

void IdPool::Free(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    CheckHeld(id, " freed twice");
    if (--holders_[static_cast<size_t>(id)] == 0) free_.push_back(id);
  }
}

absl::Status IdPool::Audit(std::span<const std::vector<int32_t>> owners) const {
  std::vector<int32_t> owned(holders_.size(), 0);
  for (const std::vector<int32_t>& owner : owners) {
    for (const int32_t id : owner) {
      if (id < 0 || id >= total()) {
        return absl::InternalError(absl::StrCat(what_, " ", id, " of ", total(), " is owned"));
      }
      ++owned[static_cast<size_t>(id)];
    }
  }
  std::vector<bool> is_free(holders_.size(), false);
  for (const int32_t id : free_) is_free[static_cast<size_t>(id)] = true;
  for (size_t id = 0; id < owned.size(); ++id) {
    if (owned[id] == holders_[id] && is_free[id] == (holders_[id] == 0)) continue;
    return absl::InternalError(absl::StrCat(
        what_, " ", id, owned[id] < holders_[id] ? " leaked" : " is held too often", ": ",
        holders_[id], " holders, ", owned[id], " owners, ", is_free[id] ? "" : "not ", "free"));
  }
  return absl::OkStatus();
}

}  // namespace baton::engine
