#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/cache_layout.h"
#include "engine/cache/record_map.h"
#include "engine/cuda/transfer_lane.h"

namespace baton::engine::cuda {

// One sequence's records in a cache that lies in device memory. Threads: as common/cache_layout.h
// says; calls take turns on the lane.
class DeviceRecords final : public SequenceRecords {
 public:
  // All three outlive it; `pages` may grow meanwhile.
  DeviceRecords(const CacheStorage& storage, const PageList& pages, int slot, TransferLane& lane)
      : map_(storage, pages, slot), lane_(lane) {}

  void AppendPieces(const RecordRange& range, std::vector<RecordPiece>* pieces) const override {
    map_.AppendPieces(range, pieces);
  }

 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                    uint32_t crc) const override;
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                     uint32_t crc) override;

  const RecordMap map_;
  TransferLane& lane_;
};

}  // namespace baton::engine::cuda
