#include "engine/cuda/transfer_lane.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

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

void TransferLane::ToHost(const std::vector<RecordRun>& runs, std::span<std::byte> bytes) {
  if (runs.empty()) return;
  const int64_t piece = Piece(runs);
  MutexLock lock(mutex_);
  for (int64_t begin = 0; begin < std::ssize(bytes); begin += piece) {
    const int64_t end = std::min<int64_t>(begin + piece, std::ssize(bytes));
    Copy(runs, begin, end, Direction::kFromCache);
    stream_.Synchronize();
    std::memcpy(bytes.data() + begin, staging_.data(), static_cast<size_t>(end - begin));
  }
}

void TransferLane::ToDevice(const std::vector<RecordRun>& runs, std::span<const std::byte> bytes) {
  if (runs.empty()) return;
  const int64_t piece = Piece(runs);
  MutexLock lock(mutex_);
  for (int64_t begin = 0; begin < std::ssize(bytes); begin += piece) {
    const int64_t end = std::min<int64_t>(begin + piece, std::ssize(bytes));
    std::memcpy(staging_.data(), bytes.data() + begin, static_cast<size_t>(end - begin));
    Copy(runs, begin, end, Direction::kToCache);
    stream_.Synchronize();
  }
}

}  // namespace baton::engine::cuda
