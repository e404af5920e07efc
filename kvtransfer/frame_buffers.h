#pragma once

#include <cstddef>
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

  std::span<std::byte> bytes() const { return region_.memory; }
  RegionId region() const { return region_.id; }

 private:
  FrameBuffer(Transport* transport, const Region& region)
      : transport_(transport), region_(region) {}

  Transport* transport_;
  Region region_;  // id 0 when moved from
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
