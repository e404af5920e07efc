#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// Memory of one frame, registered with a transport, which outlives it. Move-only.
class FrameBuffer {
 public:
  static absl::StatusOr<FrameBuffer> Create(Transport* transport, size_t bytes);
  FrameBuffer(FrameBuffer&&) noexcept;
  FrameBuffer& operator=(FrameBuffer&&) noexcept;
  ~FrameBuffer();

  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }
  RegionId region() const { return region_; }

 private:
  FrameBuffer(Transport* transport, std::unique_ptr<std::byte[]> memory, size_t size);

  Transport* transport_;
  std::unique_ptr<std::byte[]> memory_;  // null when moved from
  size_t size_;
  RegionId region_ = 0;
};

// Keeps a few buffers for the next frames: registering memory is slow on some transports. How many
// are out is bounded by the sender's windows, not here. Transfer thread only.
class FrameBuffers {
 public:
  FrameBuffers(Transport* transport, size_t frame_bytes, size_t keep)
      : transport_(transport), frame_bytes_(frame_bytes), keep_(keep) {}

  absl::StatusOr<FrameBuffer> Take();
  void Return(FrameBuffer buffer) { free_.push_back(std::move(buffer)); }
  // Gives up what is more than worth keeping. Apart from Return, so that no lock is held meanwhile.
  void Trim();

 private:
  Transport* const transport_;
  const size_t frame_bytes_;
  const size_t keep_;
  std::vector<FrameBuffer> free_;
};

}  // namespace baton::kvtransfer
