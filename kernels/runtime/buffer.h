#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

// Owners of memory. Allocation is slow and synchronises with the device: it belongs to start-up.
// Failing to get memory is a matter of configuration, so it is reported; other errors are fatal.

namespace baton::kernels {

// Memory of the current device.
struct DeviceMemory {
  static std::byte* Allocate(int64_t bytes);  // null: not that much left
  static void Free(std::byte* data);
};

// Page-locked host memory: the only kind of host memory that CopyAsync does not block on.
struct PinnedMemory {
  static std::byte* Allocate(int64_t bytes);
  static void Free(std::byte* data);
};

// Aligned to 256 bytes, contents undefined.
template <typename Memory>
class Buffer {
 public:
  static std::optional<Buffer> Allocate(int64_t bytes) {
    Buffer buffer;
    if (bytes == 0) return buffer;
    buffer.data_ = Memory::Allocate(bytes);
    if (buffer.data_ == nullptr) return std::nullopt;
    buffer.size_ = bytes;
    return buffer;
  }

  Buffer() = default;  // empty
  ~Buffer() {
    if (data_ != nullptr) Memory::Free(data_);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

using DeviceBuffer = Buffer<DeviceMemory>;
using PinnedBuffer = Buffer<PinnedMemory>;

}  // namespace baton::kernels
