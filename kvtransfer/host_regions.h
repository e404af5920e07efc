#pragma once

#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// Regions of ordinary memory, for transports that can read any. Transfer thread only.
class HostRegions {
 public:
  ~HostRegions() { BATON_CHECK(regions_.empty()) << regions_.size() << " were not released"; }

  Region Register(size_t bytes) {
    // Not zeroed: every byte that travels is written by EncodeFrame.
    std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
    const Region region{++last_, {memory.get(), bytes}};
    regions_[region.id] = {std::move(memory), region.memory};
    return region;
  }
  void Release(RegionId region) {
    BATON_CHECK(regions_.erase(region) == 1) << "region " << region << " is not registered";
  }
  std::span<std::byte> Memory(RegionId region) const { return regions_.at(region).second; }
  // For those who may still look at the memory when the region has been released.
  std::shared_ptr<std::byte[]> Share(RegionId region) const { return regions_.at(region).first; }

 private:
  absl::flat_hash_map<RegionId, std::pair<std::shared_ptr<std::byte[]>, std::span<std::byte>>>
      regions_;
  RegionId last_ = 0;
};

}  // namespace baton::kvtransfer
