#pragma once

#include <cstddef>
#include <span>

#include "common/cache_layout.h"
#include "engine/cache/page_list.h"
#include "engine/cache/storage.h"
#include "kernels/cache_view.h"

namespace baton::engine {

// One sequence's cache by logical address, over the storage's pages and rings. A record's bytes do
// not depend on page or ring sizes, so a range gathered here can be scattered into a cache of
// another geometry. Threads: as common/cache_layout.h says; it takes no locks, because records of
// different indices lie in different bytes.
class StoredRecords : public SequenceRecords {
 public:
  // All three outlive this; `pages` may grow meanwhile.
  StoredRecords(const CacheStorage& storage, const PageList& pages, int slot)
      : storage_(storage), layout_(storage.geometry().layout()), pages_(pages), slot_(slot) {}

  void Gather(const RecordRange& range, std::span<std::byte> bytes) const override;
  void Scatter(const RecordRange& range, std::span<const std::byte> bytes) override;

 private:
  // Where in its ring row the record of a position lies.
  struct RingPart {
    std::byte* row0 = nullptr;  // of ring row 0
    int64_t rows = 0;
    int64_t row_bytes = 0;
    int64_t part_bytes = 0;  // a record is `parts` parts of this size ...
    int64_t offset = 0;      // ... the first at this offset of the row ...
    int64_t stride = 0;      // ... and each next one this much further
    int parts = 1;
  };
  kernels::PagedPool Pool(const RecordRange& range) const;
  RingPart Ring(const RecordRange& range) const;
  int64_t CheckedRecordBytes(const RecordRange& range, size_t bytes) const;

  const CacheStorage& storage_;
  const CacheLayout layout_;
  const PageList& pages_;
  const int slot_;
};

}  // namespace baton::engine
