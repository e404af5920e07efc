#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/token_logprobs.h"
#include "engine/cuda/host_rows.h"
#include "engine/sampler/sampler.h"
#include "kernels/matrix.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/event.h"

namespace baton::engine::cuda {

// What a call chooses, on its way to the host.
struct SampledRows {
  HostRows<int32_t> tokens;         // [rows]
  HostRows<TokenLogprob> logprobs;  // [rows that ask, width]
  int64_t width = 1;                // 1 + the most that a row asks for

  // Empty, with room for so many rows.
  void Begin(std::span<const RowSampling> sampling);
  // Of the rows that ask, once all is here.
  std::vector<TokenLogprobs> LogprobsOf(std::span<const RowSampling> sampling) const;
};

// engine/sampler/sampler.h where the logits are: four bytes a row go to the host instead of a row,
// and log-probabilities of the rows that ask. Adjustments go to the device with the rows, all in
// one launch as far as there is room for them; each call brings all of them.
class DeviceSampler {
 public:
  static int64_t Bytes(int64_t max_rows);
  // Both of Bytes(rows of the largest call).
  DeviceSampler(kernels::DeviceBuffer device, kernels::PinnedBuffer staging)
      : device_(std::move(device)), staging_(std::move(staging)) {}

  // `result` gains these rows: CheckSampled once its tokens have arrived. Leaves adjusted logits
  // behind.
  void Sample(kernels::MatrixView<float> logits, std::span<const RowSampling> sampling,
              SampledRows& result, CUstream_st* stream);

 private:
  // Of rows that have `adjustments` in all, for which there is room.
  void SampleGroup(kernels::MatrixView<float> logits, std::span<const RowSampling> sampling,
                   int64_t adjustments, SampledRows& result, CUstream_st* stream);

  // Log-probabilities, then what is uploaded, then logits as they were, then tokens.
  kernels::DeviceBuffer device_;
  kernels::PinnedBuffer staging_;
  kernels::Event copied_;
};

// Fatal where logits were broken.
void CheckSampled(std::span<const int32_t> tokens);

}  // namespace baton::engine::cuda
