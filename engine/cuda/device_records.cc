#include "engine/cuda/device_records.h"

namespace baton::engine::cuda {

uint32_t DeviceRecords::DoGather(const RecordRange& range, std::span<std::byte> bytes,
                                 uint32_t crc) const {
  return lane_.ToHost(map_.Runs(range, bytes.size()), bytes, crc);
}

uint32_t DeviceRecords::DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                                  uint32_t crc) {
  return lane_.ToDevice(map_.Runs(range, bytes.size()), bytes, crc);
}

}  // namespace baton::engine::cuda
