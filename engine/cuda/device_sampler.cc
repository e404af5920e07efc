#include "engine/cuda/device_sampler.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/sampler.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {
namespace {

using kernels::cuda::SampleRow;

// Ids that would end the sequence too early, at most so many a row.
constexpr int64_t kMaxBanned = static_cast<int64_t>(kMaxStopTokenIds) + 1;

int32_t* AppendBanned(const RowSampling& sampling, int32_t* end) {
  const SamplingParams& params = *sampling.params;
  if (sampling.point.generated >= params.min_tokens) return end;
  int32_t* const begin = end;
  end = std::copy(params.stop_token_ids.begin(), params.stop_token_ids.end(), begin);
  if (!params.ignore_eos) *end++ = sampling.point.eos_token_id;
  std::sort(begin, end);
  return end;
}

}  // namespace

int64_t DeviceSampler::Bytes(int64_t max_rows) {
  return max_rows * (int64_t{sizeof(SampleRow)} + (1 + kMaxBanned) * int64_t{sizeof(int32_t)});
}

// What is uploaded comes first, tokens last.
void DeviceSampler::Sample(kernels::MatrixView<const float> logits,
                           std::span<const RowSampling> sampling, HostRows<int32_t>& tokens,
                           CUstream_st* stream) {
  BATON_CHECK(std::ssize(sampling) == logits.rows && Bytes(logits.rows) <= device_.size())
      << sampling.size() << " of " << logits.rows << " rows";
  copied_.Synchronize();
  auto* const rows = staging_.As<SampleRow>();
  auto* const banned = reinterpret_cast<int32_t*>(rows + logits.rows);
  int32_t* end = banned;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const SamplingParams& params = *sampling[i].params;
    rows[i] = {.temperature = params.temperature,
               .top_p = params.top_p,
               .min_p = params.min_p,
               .top_k = params.top_k,
               .seed = params.seed,
               .position = sampling[i].point.position,
               .banned_begin = static_cast<int32_t>(end - banned)};
    end = AppendBanned(sampling[i], end);
    rows[i].banned_count = static_cast<int32_t>(end - banned) - rows[i].banned_begin;
  }
  kernels::CopyAsync(device_.data(), staging_.data(),
                     reinterpret_cast<std::byte*>(end) - staging_.data(), stream);
  copied_.Record(stream);
  const auto* const device_rows = device_.As<SampleRow>();
  const kernels::MatrixView<int32_t> sampled(
      reinterpret_cast<int32_t*>(device_.data() + device_.size()) - logits.rows, logits.rows, 1);
  kernels::cuda::Sample({.logits = logits,
                         .rows = device_rows,
                         .banned = reinterpret_cast<const int32_t*>(device_rows + logits.rows),
                         .tokens = sampled.data},
                        stream);
  tokens.Append(sampled, stream);
}

void CheckSampled(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    BATON_CHECK(token != kernels::cuda::kBrokenLogits)
        << "a row of logits holds NaN or +infinity, or has no finite value";
  }
}

}  // namespace baton::engine::cuda
