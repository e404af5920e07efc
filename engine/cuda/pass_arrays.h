#pragma once

#include <cstdint>

#include "engine/model/pass.h"
#include "kernels/cuda/batch.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/event.h"

namespace baton::engine::cuda {

// The arrays of a pass on the device: written here, read by every op of the pass. One pass at a
// time; uploading the next waits until the copy of the one before has been made.
class PassArrays {
 public:
  // Page ids of a pass: as many as 2,048 sequences of a million tokens have.
  static constexpr int64_t kMaxPageIds = int64_t{8} << 20;
  static constexpr int64_t Bytes(int64_t max_rows) {
    // A sequence has at least one row.
    return (6 * max_rows + 1 + kMaxPageIds) * int64_t{sizeof(int32_t)};
  }
  // Both of Bytes(largest pass).
  PassArrays(kernels::DeviceBuffer device, kernels::PinnedBuffer staging)
      : device_(std::move(device)), staging_(std::move(staging)) {}

  struct View {
    kernels::cuda::BatchView batch;
    const int32_t* tokens = nullptr;  // [rows]
  };
  View Upload(const Pass& pass, CUstream_st* stream);

 private:
  kernels::DeviceBuffer device_;
  kernels::PinnedBuffer staging_;
  kernels::Event copied_;
};

}  // namespace baton::engine::cuda
