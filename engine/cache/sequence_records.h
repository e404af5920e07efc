#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/cache_layout.h"
#include "engine/cache/record_map.h"

namespace baton::engine {

// One sequence's records in a cache that lies in main memory. A record's bytes do not depend on
// page or ring sizes, so a range gathered here can be scattered into a cache of another geometry.
// Threads: as common/cache_layout.h says; it takes no locks, because records of different indices
// lie in different bytes.
class StoredRecords final : public SequenceRecords {
 public:
  // Storage and pages outlive it; `pages` may grow meanwhile.
  StoredRecords(const CacheStorage& storage, const PageList& pages, int slot)
      : map_(storage, pages, slot) {}

  void AppendPieces(const RecordRange& range, std::vector<RecordPiece>* pieces) const override {
    map_.AppendPieces(range, pieces);
  }

 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                    uint32_t crc) const override;
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                     uint32_t crc) override;

  const RecordMap map_;
};

}  // namespace baton::engine
