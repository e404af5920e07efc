#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cache_layout.h"
#include "engine/cache/page_list.h"
#include "engine/cache/storage.h"
#include "kernels/cache_view.h"

namespace baton::engine {

// The same part of several successive records: `bytes` bytes each, `stride` apart in the cache and
// `record_bytes` apart in the buffer that the range is gathered into or scattered from.
struct RecordRun {
  std::byte* cache = nullptr;
  int64_t stride = 0;
  int64_t buffer = 0;  // offset of the first part
  int64_t record_bytes = 0;
  int64_t bytes = 0;
  int64_t count = 0;
};

// Where a sequence's records lie, by logical address, whatever page and ring sizes. Computes
// addresses only, so that the cache may be in any memory. Thread-safe; `pages` may grow meanwhile.
class RecordMap {
 public:
  // Storage and pages outlive it.
  RecordMap(const CacheStorage& storage, const PageList& pages, int slot)
      : storage_(storage), layout_(storage.geometry().layout()), pages_(pages), slot_(slot) {}

  // Runs that cover the range, by record; parts of the same records follow each other. Fatal unless
  // `bytes` is the size of the records and their places have been reserved.
  std::vector<RecordRun> Runs(const RecordRange& range, size_t bytes) const;
  // The same memory in the order of the buffer.
  std::vector<RecordPiece> Pieces(const RecordRange& range, size_t bytes) const;
  // As SequenceRecords::AppendPieces says.
  void AppendPieces(const RecordRange& range, std::vector<RecordPiece>* pieces) const;

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
  std::vector<RecordRun> PageRuns(const RecordRange& range, int64_t record_bytes) const;
  std::vector<RecordRun> RingRuns(const RecordRange& range, int64_t record_bytes) const;

  const CacheStorage& storage_;
  const CacheLayout layout_;
  const PageList& pages_;
  const int slot_;
};

}  // namespace baton::engine
