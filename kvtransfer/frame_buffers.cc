#include "kvtransfer/frame_buffers.h"

#include <utility>

namespace baton::kvtransfer {

FrameBuffer::FrameBuffer(Transport* transport, std::unique_ptr<std::byte[]> memory, size_t size)
    : transport_(transport), memory_(std::move(memory)), size_(size) {}

absl::StatusOr<FrameBuffer> FrameBuffer::Create(Transport* transport, size_t bytes) {
  // Not zeroed: every byte that travels is written by EncodeFrame.
  FrameBuffer buffer(transport, std::unique_ptr<std::byte[]>(new std::byte[bytes]), bytes);
  absl::StatusOr<RegionId> region = transport->Register(buffer.bytes());
  if (!region.ok()) return region.status();
  buffer.region_ = *region;
  return buffer;
}

FrameBuffer::FrameBuffer(FrameBuffer&& other) noexcept
    : transport_(other.transport_),
      memory_(std::move(other.memory_)),
      size_(std::exchange(other.size_, 0)),
      region_(std::exchange(other.region_, 0)) {}

FrameBuffer& FrameBuffer::operator=(FrameBuffer&& other) noexcept {
  std::swap(transport_, other.transport_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(region_, other.region_);
  return *this;
}

FrameBuffer::~FrameBuffer() {
  if (region_ != 0) transport_->Release(region_);
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
