#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "engine/cache/page_list.h"
#include "engine/cache/page_pool.h"

namespace baton::engine {

// Pages and slots by owner, for the invariant total = free + used.
struct CacheUsage {
  int64_t pages_total = 0;
  int64_t pages_free = 0;
  int64_t pages_sequences = 0;  // recounted from the live sequences, not derived from the others
  int slots_total = 0;
  int slots_free = 0;
};

// Who holds which page and state slot. Thread-safe, though only the engine thread changes it:
// usage() and Audit() are for whoever exports them.
class CacheLedger {
 public:
  CacheLedger(int64_t pages, int slots);

  // A state slot, and `pages` pages appended to the empty `list`; or RESOURCE_EXHAUSTED, which says
  // what is short, and nothing is taken. `list` must stay where it is until Close.
  absl::StatusOr<int> Open(int64_t pages, PageList& list);
  // `pages` more, all or nothing.
  absl::Status Grow(int64_t pages, PageList& list);
  void Close(int slot);

  CacheUsage usage() const;
  // INTERNAL, naming the page or slot, unless each is free or held by exactly one live sequence.
  absl::Status Audit() const;

 private:
  absl::Status TakePages(int64_t pages, PageList& list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  IdPool pages_ ABSL_GUARDED_BY(mutex_);
  IdPool slots_ ABSL_GUARDED_BY(mutex_);
  // Of the live sequence in each slot; null: none.
  std::vector<const PageList*> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::engine
