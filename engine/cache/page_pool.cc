#include "engine/cache/page_pool.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::engine {

IdPool::IdPool(std::string what, int64_t total)
    : what_(std::move(what)),
      free_(static_cast<size_t>(total)),
      is_free_(static_cast<size_t>(total), true) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // lowest ids leave first
}

std::optional<std::vector<int32_t>> IdPool::Allocate(int64_t count) {
  BATON_CHECK(count >= 0) << "allocating " << count << " " << what_ << " ids";
  if (count > free()) return std::nullopt;
  std::vector<int32_t> ids(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - static_cast<size_t>(count));
  for (const int32_t id : ids) is_free_[static_cast<size_t>(id)] = false;
  return ids;
}

void IdPool::Free(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    BATON_CHECK(id >= 0 && id < total()) << what_ << " " << id << " of " << total();
    BATON_CHECK(!is_free_[static_cast<size_t>(id)]) << what_ << " " << id << " freed twice";
    is_free_[static_cast<size_t>(id)] = true;
    free_.push_back(id);
  }
}

absl::Status IdPool::Audit(std::span<const std::vector<int32_t>> owners) const {
  std::vector<int> holders(is_free_.begin(), is_free_.end());
  for (const std::vector<int32_t>& owner : owners) {
    for (const int32_t id : owner) {
      if (id < 0 || id >= total()) {
        return absl::InternalError(absl::StrCat(what_, " ", id, " of ", total(), " is owned"));
      }
      ++holders[static_cast<size_t>(id)];
    }
  }
  for (int64_t id = 0; id < total(); ++id) {
    const int count = holders[static_cast<size_t>(id)];
    if (count == 1) continue;
    return absl::InternalError(
        absl::StrCat(what_, " ", id,
                     count == 0 ? " leaked: neither free nor owned" : " is held more than once"));
  }
  return absl::OkStatus();
}

}  // namespace baton::engine
