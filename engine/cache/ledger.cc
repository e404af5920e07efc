#include "engine/cache/ledger.h"

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"

namespace baton::engine {

CacheLedger::CacheLedger(int64_t pages, int slots)
    : pages_("page", pages), slots_("slot", slots), live_(static_cast<size_t>(slots)) {}

absl::Status CacheLedger::TakePages(int64_t pages, PageList& list) {
  const std::optional<std::vector<int32_t>> ids = pages_.Allocate(pages);
  if (!ids) {
    return absl::ResourceExhaustedError(absl::StrCat(pages, " cache pages wanted, ", pages_.free(),
                                                     " of ", pages_.total(), " are free"));
  }
  list.Append(*ids);
  return absl::OkStatus();
}

absl::StatusOr<int> CacheLedger::Open(int64_t pages, PageList& list) {
  BATON_CHECK(list.size() == 0) << list.size() << " pages already";
  MutexLock lock(mutex_);
  if (slots_.free() == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slots_.total(), " state slots are taken"));
  }
  BATON_RETURN_IF_ERROR(TakePages(pages, list));
  const int slot = slots_.Allocate(1)->front();
  live_[static_cast<size_t>(slot)] = &list;
  return slot;
}

absl::Status CacheLedger::Grow(int64_t pages, PageList& list) {
  MutexLock lock(mutex_);
  return TakePages(pages, list);
}

void CacheLedger::Close(int slot) {
  MutexLock lock(mutex_);
  const PageList*& list = live_.at(static_cast<size_t>(slot));
  BATON_CHECK(list != nullptr) << "slot " << slot << " is not live";
  pages_.Free(list->ids());
  list = nullptr;
  slots_.Free(std::array{static_cast<int32_t>(slot)});
}

CacheUsage CacheLedger::usage() const {
  MutexLock lock(mutex_);
  CacheUsage usage{.pages_total = pages_.total(),
                   .pages_free = pages_.free(),
                   .slots_total = static_cast<int>(slots_.total()),
                   .slots_free = static_cast<int>(slots_.free())};
  for (const PageList* list : live_) {
    if (list != nullptr) usage.pages_sequences += list->size();
  }
  return usage;
}

absl::Status CacheLedger::Audit() const {
  MutexLock lock(mutex_);
  std::vector<std::vector<int32_t>> pages;
  std::vector<std::vector<int32_t>> slots;
  for (size_t slot = 0; slot < live_.size(); ++slot) {
    if (live_[slot] == nullptr) continue;
    const std::span<const int32_t> ids = live_[slot]->ids();
    pages.emplace_back(ids.begin(), ids.end());
    slots.push_back({static_cast<int32_t>(slot)});
  }
  BATON_RETURN_IF_ERROR(pages_.Audit(pages));
  return slots_.Audit(slots);
}

}  // namespace baton::engine
