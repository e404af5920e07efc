#include "engine/cache/ledger.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "engine/cache/page_census.h"

namespace baton::engine {

CacheLedger::CacheLedger(const Options& options)
    : page_tokens_(options.page_tokens),
      pages_("page", options.pages),
      slots_("slot", options.slots),
      index_(options.page_tokens, options.prefix),
      live_(static_cast<size_t>(options.slots)) {}

absl::StatusOr<std::vector<int32_t>> CacheLedger::TakePages(int64_t pages) {
  if (pages > pages_.free()) {
    const auto sole = [this](int32_t page)
                          ABSL_NO_THREAD_SAFETY_ANALYSIS { return pages_.holders(page) == 1; };
    const std::optional<std::vector<int32_t>> evicted = index_.Evict(pages - pages_.free(), sole);
    if (!evicted) {
      return absl::ResourceExhaustedError(absl::StrCat(
          pages, " cache pages wanted, ", pages_.free(), " of ", pages_.total(), " are free"));
    }
    LetGo(*evicted);
  }
  return *pages_.Allocate(pages);
}

void CacheLedger::LetGo(std::span<const int32_t> pages) {
  pages_.Free(pages);
  evicted_ += std::ssize(pages);
}

absl::StatusOr<CacheLedger::Opening> CacheLedger::Open(std::span<const int32_t> prompt,
                                                       PrefixUse use, int64_t pages,
                                                       PageList& list) {
  BATON_CHECK(list.size() == 0) << list.size() << " pages already";
  MutexLock lock(mutex_);
  if (slots_.free() == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slots_.total(), " state slots are taken"));
  }
  PrefixIndex::Match match = index_.Use(prompt);
  Opening opening{.matched_tokens = std::ssize(match.pages) * page_tokens_};
  // Computing writes from the boundary on, so pages beyond it are of no use.
  const int64_t whole = match.resume_tokens() / page_tokens_;
  const bool resumes = use == PrefixUse::kCompute || whole == std::ssize(match.pages);
  if (resumes) {
    match.pages.resize(static_cast<size_t>(whole));
    opening.state = std::move(match.state);
  }
  opening.shared_tokens = std::ssize(match.pages) * page_tokens_;
  pages_.Share(match.pages);  // now, or making room might take them away
  absl::StatusOr<std::vector<int32_t>> fresh = TakePages(pages - std::ssize(match.pages));
  if (!fresh.ok()) {
    pages_.Free(match.pages);
    return fresh.status();
  }
  list.Append(match.pages);
  list.Append(*fresh);
  opening.slot = slots_.Allocate(1)->front();
  live_[static_cast<size_t>(opening.slot)] = &list;
  return opening;
}

absl::Status CacheLedger::Grow(int64_t pages, PageList& list) {
  MutexLock lock(mutex_);
  BATON_ASSIGN_OR_RETURN(const std::vector<int32_t> fresh, TakePages(pages));
  list.Append(fresh);
  return absl::OkStatus();
}

void CacheLedger::Close(int slot) {
  MutexLock lock(mutex_);
  const PageList*& list = live_.at(static_cast<size_t>(slot));
  BATON_CHECK(list != nullptr) << "slot " << slot << " is not live";
  pages_.Free(list->ids());
  list = nullptr;
  slots_.Free(std::array{static_cast<int32_t>(slot)});
}

void CacheLedger::Keep(std::span<const int32_t> tokens, const PageList& list,
                       PrefixIndex::State state) {
  MutexLock lock(mutex_);
  pages_.Share(index_.Insert(tokens, list.ids(), std::move(state)));
  LetGo(index_.Trim());
}

bool CacheLedger::HasBoundary(std::span<const int32_t> tokens) const {
  MutexLock lock(mutex_);
  return index_.HasBoundary(tokens);
}

PrefixIndex::Match CacheLedger::FindPrefix(std::span<const int32_t> prompt) const {
  MutexLock lock(mutex_);
  return index_.Find(prompt);
}

CacheUsage CacheLedger::usage() const {
  MutexLock lock(mutex_);
  CacheUsage usage{.pages_total = pages_.total(),
                   .pages_free = pages_.free(),
                   .slots_total = static_cast<int>(slots_.total()),
                   .slots_free = static_cast<int>(slots_.free())};
  PageCensus census(pages_.total());
  for (const PageList* list : live_) {
    if (list != nullptr) usage.pages_sequences += census.Count(list->ids());
  }
  usage.pages_prefix = census.Count(index_.pages());
  return usage;
}

int64_t CacheLedger::prefix_pages_evicted() const {
  MutexLock lock(mutex_);
  return evicted_;
}

absl::Status CacheLedger::Audit() const {
  MutexLock lock(mutex_);
  std::vector<std::vector<int32_t>> pages = {index_.pages()};
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
