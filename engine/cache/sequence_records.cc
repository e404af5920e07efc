#include "engine/cache/sequence_records.h"

#include <cstring>

namespace baton::engine {

void StoredRecords::Gather(const RecordRange& range, std::span<std::byte> bytes) const {
  for (const RecordRun& run : map_.Runs(range, bytes.size())) {
    for (int64_t i = 0; i < run.count; ++i) {
      std::memcpy(bytes.data() + run.buffer + i * run.record_bytes, run.cache + i * run.stride,
                  static_cast<size_t>(run.bytes));
    }
  }
}

void StoredRecords::Scatter(const RecordRange& range, std::span<const std::byte> bytes) {
  for (const RecordRun& run : map_.Runs(range, bytes.size())) {
    for (int64_t i = 0; i < run.count; ++i) {
      std::memcpy(run.cache + i * run.stride, bytes.data() + run.buffer + i * run.record_bytes,
                  static_cast<size_t>(run.bytes));
    }
  }
}

}  // namespace baton::engine
