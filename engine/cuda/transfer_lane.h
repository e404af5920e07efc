#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/mutex.h"
#include "engine/cache/record_map.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {

// Moves records between device and host memory on a stream of its own, beside the engine's. The
// bytes go through page-locked memory, as many at a time as it holds. Thread-safe; calls take turns
// and return when the bytes have arrived.
class TransferLane {
 public:
  // Larger than a frame of a hand-off, so that one usually goes in one piece.
  static constexpr int64_t kStagingBytes = int64_t{4} << 20;

  explicit TransferLane(kernels::PinnedBuffer staging) : staging_(std::move(staging)) {}

  // Both return the CRC-32C of the bytes, appended to `crc`, as SequenceRecords says.
  uint32_t ToHost(const std::vector<RecordRun>& runs, std::span<std::byte> bytes, uint32_t crc);
  uint32_t ToDevice(const std::vector<RecordRun>& runs, std::span<const std::byte> bytes,
                    uint32_t crc);

 private:
  // Records of all runs whose parts lie in [begin, end) of the buffer, between the cache and the
  // staging memory.
  enum class Direction : uint8_t { kFromCache, kToCache };
  void Copy(const std::vector<RecordRun>& runs, int64_t begin, int64_t end, Direction direction)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whole records that fit the staging memory, in bytes.
  int64_t Piece(const std::vector<RecordRun>& runs) const;

  Mutex mutex_;
  kernels::Stream stream_ ABSL_GUARDED_BY(mutex_);
  const kernels::PinnedBuffer staging_;
};

}  // namespace baton::engine::cuda
