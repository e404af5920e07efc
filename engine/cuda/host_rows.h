#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "kernels/matrix.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {

// Rows on their way from the device to the host: copies into page-locked memory are made while the
// host goes on, so that a call waits once, at its end.
template <typename T>
class HostRows {
 public:
  // Empty, with room for so many values. Memory grows to what the largest call needed; nothing may
  // be on its way then.
  void Begin(int64_t values) {
    used_ = 0;
    const auto bytes = static_cast<uint64_t>(values) * sizeof(T);
    if (static_cast<int64_t>(bytes) <= memory_.size()) return;
    memory_ = {};  // before the larger one is taken
    auto memory = kernels::PinnedBuffer::Allocate(static_cast<int64_t>(std::bit_ceil(bytes)));
    BATON_CHECK(memory.has_value()) << "no page-locked memory for results of " << bytes << " bytes";
    memory_ = *std::move(memory);
  }
  void Append(kernels::MatrixView<const T> rows, CUstream_st* stream) {
    BATON_CHECK(rows.stride == rows.cols) << "rows are not adjacent";
    const int64_t values = rows.rows * rows.cols;
    BATON_CHECK((used_ + values) * int64_t{sizeof(T)} <= memory_.size())
        << used_ << " + " << values;
    if (values == 0) return;
    kernels::CopyAsync(memory_.As<T>() + used_, rows.data, values * int64_t{sizeof(T)}, stream);
    used_ += values;
  }
  // Complete once the stream has been waited for; valid until Begin.
  std::span<const T> values() const { return {memory_.As<T>(), static_cast<size_t>(used_)}; }

 private:
  kernels::PinnedBuffer memory_;
  int64_t used_ = 0;
};

}  // namespace baton::engine::cuda
