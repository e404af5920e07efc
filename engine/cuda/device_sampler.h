#pragma once

#include <cstdint>
#include <span>

#include "engine/cuda/host_rows.h"
#include "engine/sampler/sampler.h"
#include "kernels/matrix.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/event.h"

namespace baton::engine::cuda {

// engine/sampler/sampler.h where the logits are: four bytes a row go to the host instead of a row.
class DeviceSampler {
 public:
  static int64_t Bytes(int64_t max_rows);
  // Both of Bytes(rows of the largest call).
  DeviceSampler(kernels::DeviceBuffer device, kernels::PinnedBuffer staging)
      : device_(std::move(device)), staging_(std::move(staging)) {}

  // tokens gains one value a row: CheckSampled once it has arrived.
  void Sample(kernels::MatrixView<const float> logits, std::span<const RowSampling> sampling,
              HostRows<int32_t>& tokens, CUstream_st* stream);

 private:
  kernels::DeviceBuffer device_;
  kernels::PinnedBuffer staging_;
  kernels::Event copied_;
};

// Fatal where logits were broken.
void CheckSampled(std::span<const int32_t> tokens);

}  // namespace baton::engine::cuda
