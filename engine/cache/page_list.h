#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/check.h"

namespace baton::engine {

// The page table of one sequence. It grows in place, without moving, so that a transfer thread may
// read the entries that were there when its records were reserved while the engine thread appends.
class PageList {
 public:
  explicit PageList(int64_t capacity)
      : capacity_(capacity), ids_(std::make_unique<int32_t[]>(static_cast<size_t>(capacity))) {}

  // Engine thread only.
  void Append(std::span<const int32_t> ids) {
    const int64_t size = size_.load(std::memory_order_relaxed);
    const auto count = static_cast<int64_t>(ids.size());
    BATON_CHECK(size + count <= capacity_) << size << " + " << count << " > " << capacity_;
    for (int64_t i = 0; i < count; ++i) ids_[static_cast<size_t>(size + i)] = ids[i];
    size_.store(size + count, std::memory_order_release);
  }

  // Thread-safe.
  std::span<const int32_t> ids() const {
    return {ids_.get(), static_cast<size_t>(size_.load(std::memory_order_acquire))};
  }
  int64_t size() const { return size_.load(std::memory_order_acquire); }

 private:
  const int64_t capacity_;
  std::unique_ptr<int32_t[]> ids_;
  std::atomic<int64_t> size_ = 0;
};

}  // namespace baton::engine
