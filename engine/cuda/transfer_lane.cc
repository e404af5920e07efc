#include "engine/cuda/transfer_lane.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/crc32c.h"

namespace baton::engine::cuda {

int64_t TransferLane::Piece(const std::vector<RecordRun>& runs) const {
  const int64_t record_bytes = runs.front().record_bytes;
  BATON_CHECK(record_bytes <= staging_.size()) << "a record of " << record_bytes << " bytes";
  return staging_.size() / record_bytes * record_bytes;
}

void TransferLane::Copy(const std::vector<RecordRun>& runs, int64_t begin, int64_t end,
                        Direction direction) {
  for (const RecordRun& run : runs) {
    // Parts lie in the same order as their records, so those of a piece are neighbours.
    const int64_t first =
        std::max<int64_t>(0, begin / run.record_bytes - run.buffer / run.record_bytes);
    const int64_t last =
        std::min(run.count, end / run.record_bytes - run.buffer / run.record_bytes);
    if (first >= last) continue;
    std::byte* staged = staging_.data() + run.buffer + first * run.record_bytes - begin;
    std::byte* cached = run.cache + first * run.stride;
    if (direction == Direction::kFromCache) {
      kernels::CopyRowsAsync(staged, run.record_bytes, cached, run.stride, run.bytes, last - first,
                             stream_.get());
    } else {
      kernels::CopyRowsAsync(cached, run.stride, staged, run.record_bytes, run.bytes, last - first,
                             stream_.get());
    }
  }
}

uint32_t TransferLane::ToHost(const std::vector<RecordRun>& runs, std::span<std::byte> bytes,
                              uint32_t crc) {
  if (runs.empty()) return crc;
  const int64_t piece = Piece(runs);
  MutexLock lock(mutex_);
  for (int64_t begin = 0; begin < std::ssize(bytes); begin += piece) {
    const int64_t end = std::min<int64_t>(begin + piece, std::ssize(bytes));
    Copy(runs, begin, end, Direction::kFromCache);
    stream_.Synchronize();
    crc = kernels::Crc32cCopy({staging_.data(), static_cast<size_t>(end - begin)},
                              bytes.data() + begin, crc, kernels::Stores::kCached);
  }
  return crc;
}

uint32_t TransferLane::ToDevice(const std::vector<RecordRun>& runs,
                                std::span<const std::byte> bytes, uint32_t crc) {
  if (runs.empty()) return crc;
  const int64_t piece = Piece(runs);
  MutexLock lock(mutex_);
  for (int64_t begin = 0; begin < std::ssize(bytes); begin += piece) {
    const int64_t end = std::min<int64_t>(begin + piece, std::ssize(bytes));
    crc = kernels::Crc32cCopy(bytes.subspan(begin, end - begin), staging_.data(), crc,
                              kernels::Stores::kStreaming);
    Copy(runs, begin, end, Direction::kToCache);
    stream_.Synchronize();
  }
  return crc;
}

}  // namespace baton::engine::cuda
