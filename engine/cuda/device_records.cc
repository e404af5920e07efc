#include "engine/cuda/device_records.h"

namespace baton::engine::cuda {

void DeviceRecords::Gather(const RecordRange& range, std::span<std::byte> bytes) const {
  lane_.ToHost(map_.Runs(range, bytes.size()), bytes);
}

void DeviceRecords::Scatter(const RecordRange& range, std::span<const std::byte> bytes) {
  lane_.ToDevice(map_.Runs(range, bytes.size()), bytes);
}

}  // namespace baton::engine::cuda
