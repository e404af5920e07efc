#include "kvtransfer/frame_buffers.h"

#include <utility>

namespace baton::kvtransfer {

absl::StatusOr<FrameBuffer> FrameBuffer::Create(Transport* transport, size_t bytes) {
  const absl::StatusOr<Region> region = transport->Register(bytes);
  if (!region.ok()) return region.status();
  return FrameBuffer(transport, *region);
}

FrameBuffer::FrameBuffer(FrameBuffer&& other) noexcept
    : transport_(other.transport_), region_(std::exchange(other.region_, {})) {}

FrameBuffer& FrameBuffer::operator=(FrameBuffer&& other) noexcept {
  std::swap(transport_, other.transport_);
  std::swap(region_, other.region_);
  return *this;
}

FrameBuffer::~FrameBuffer() {
  if (region_.id != 0) transport_->Release(region_.id);
}

absl::StatusOr<FrameBuffer> FrameBuffers::Take() {
  if (free_.empty()) return FrameBuffer::Create(transport_, frame_bytes_);
  FrameBuffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void FrameBuffers::Trim() {
  while (free_.size() > keep_) free_.pop_back();
}

}  // namespace baton::kvtransfer
