#pragma once

#include <cstdint>

#include "engine/model/pass.h"
#include "kernels/cuda/batch.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/event.h"

namespace baton::engine::cuda {

// What the launches of a pass are made for. The pass itself may be smaller: that is what lets one
// captured step serve many. Rows and sequences beyond are padded (kernels/cuda/batch.h).
struct PassShape {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t sequence_rows = 0;  // no sequence has more
  int64_t positions = 0;      // nor more positions, those of the pass included
  int64_t pages = 1;          // that so many positions take

  // Exactly what the pass needs, with pages of so many tokens. 0: no op looks at pages, nor at how
  // many positions there are.
  static PassShape Of(const Pass& pass, int page_tokens);
};

// The arrays of a pass on the device: written here, read by every op of the pass. One pass at a
// time; uploading the next waits until the copy of the one before has been made. Where they lie is
// decided by the shape alone.
class PassArrays {
 public:
  // Page ids of a pass: as many as the 256 sequences of the largest captured step have, of a
  // million tokens in the smallest pages.
  static constexpr int64_t kMaxPageIds = int64_t{2} << 20;
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
  View Upload(const Pass& pass, const PassShape& shape, CUstream_st* stream);

 private:
  kernels::DeviceBuffer device_;
  kernels::PinnedBuffer staging_;
  kernels::Event copied_;
};

}  // namespace baton::engine::cuda
