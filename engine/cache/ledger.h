#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "engine/cache/page_list.h"
#include "engine/cache/page_pool.h"
#include "engine/cache/prefix_index.h"

namespace baton::engine {

// Pages and slots by owner, for the invariant total = free + sequences + prefix. The owners are
// recounted from what is alive, not derived from the others.
struct CacheUsage {
  int64_t pages_total = 0;
  int64_t pages_free = 0;
  int64_t pages_sequences = 0;  // held by live sequences; one that several share counts once
  int64_t pages_prefix = 0;     // held by the prefix index alone, and free as soon as wanted
  int slots_total = 0;
  int slots_free = 0;

  int64_t pages_available() const { return pages_free + pages_prefix; }
};

// What a new sequence does with what is cached of its prompt.
enum class PrefixUse {
  kCompute,  // goes on from a boundary: needs the state there, and shares the pages before it
  kReceive,  // is handed over: shares all pages it can, the rest and the state are received
};

// Who holds which page and state slot, the prefix index included. Pages that are short are taken
// from the index. Thread-safe, though only the engine thread changes it: usage() and Audit() are
// for whoever exports them.
class CacheLedger {
 public:
  struct Options {
    int64_t pages = 0;
    int slots = 0;
    int page_tokens = 1;
    PrefixLimits prefix = {};
  };
  explicit CacheLedger(const Options& options);

  struct Opening {
    int slot = -1;
    int64_t shared_tokens = 0;   // of the list's first pages, which are full and others' too
    int64_t matched_tokens = 0;  // of all cached pages, shared or not
    PrefixIndex::State state = nullptr;  // brings more than the shared pages, or null
  };
  // A state slot, and `pages` pages appended to the empty `list`, the longest cached beginning of
  // `prompt` among them; or RESOURCE_EXHAUSTED, which says what is short, and nothing is taken.
  // `list` must stay where it is until Close.
  absl::StatusOr<Opening> Open(std::span<const int32_t> prompt, PrefixUse use, int64_t pages,
                               PageList& list);
  // `pages` more, all or nothing.
  absl::Status Grow(int64_t pages, PageList& list);
  void Close(int slot);

  // The index keeps the pages of `tokens`, which `list` holds, and a boundary where `state` is,
  // within its limits. Null: none.
  void Keep(std::span<const int32_t> tokens, const PageList& list, PrefixIndex::State state);
  bool HasBoundary(std::span<const int32_t> tokens) const;
  PrefixIndex::Match FindPrefix(std::span<const int32_t> prompt) const;

  CacheUsage usage() const;
  int64_t prefix_pages_evicted() const;  // ever: for others, or by the limits
  // INTERNAL, naming the page or slot, unless each is free or has as many holders as there are live
  // sequences and places in the index that name it.
  absl::Status Audit() const;

 private:
  absl::StatusOr<std::vector<int32_t>> TakePages(int64_t pages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LetGo(std::span<const int32_t> pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t page_tokens_;
  mutable Mutex mutex_;
  IdPool pages_ ABSL_GUARDED_BY(mutex_);
  IdPool slots_ ABSL_GUARDED_BY(mutex_);
  PrefixIndex index_ ABSL_GUARDED_BY(mutex_);
  int64_t evicted_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the live sequence in each slot; null: none.
  std::vector<const PageList*> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::engine
