#include "engine/cuda/device_sampler.h"

#include <algorithm>

#include "common/base/check.h"
#include "engine/sampler/logprobs.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sampler.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {
namespace {

using kernels::cuda::SampleRow;

// Ids that would end the sequence too early, at most so many a row.
constexpr int64_t kMaxBanned = static_cast<int64_t>(kMaxStopTokenIds) + 1;
constexpr int64_t kMaxLogprobsBytes = (1 + kMaxTopLogprobs) * int64_t{sizeof(TokenLogprob)};

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

void SampledRows::Begin(std::span<const RowSampling> sampling) {
  int64_t asking = 0;
  width = 1;
  for (const RowSampling& row : sampling) {
    if (!row.top_logprobs) continue;
    ++asking;
    width = std::max<int64_t>(width, 1 + *row.top_logprobs);
  }
  tokens.Begin(std::ssize(sampling));
  logprobs.Begin(asking * width);
}

std::vector<TokenLogprobs> SampledRows::LogprobsOf(std::span<const RowSampling> sampling) const {
  std::vector<TokenLogprobs> rows;
  for (const RowSampling& row : sampling) {
    if (!row.top_logprobs) continue;
    const size_t begin = rows.size() * static_cast<size_t>(width);
    rows.push_back(LogprobsOfRow(logprobs.values().subspan(begin, static_cast<size_t>(width)),
                                 *row.top_logprobs));
  }
  return rows;
}

int64_t DeviceSampler::Bytes(int64_t max_rows) {
  return max_rows * (kMaxLogprobsBytes + int64_t{sizeof(SampleRow)} +
                     (2 + kMaxBanned) * int64_t{sizeof(int32_t)});
}

void DeviceSampler::Sample(kernels::MatrixView<const float> logits,
                           std::span<const RowSampling> sampling, SampledRows& result,
                           CUstream_st* stream) {
  BATON_CHECK(std::ssize(sampling) == logits.rows && Bytes(logits.rows) <= device_.size())
      << sampling.size() << " of " << logits.rows << " rows";
  copied_.Synchronize();
  auto* const rows = staging_.As<SampleRow>();
  auto* const out_row = reinterpret_cast<int32_t*>(rows + logits.rows);
  int32_t* const banned = out_row + logits.rows;
  int32_t* end = banned;
  int32_t asking = 0;
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
    out_row[i] = sampling[i].top_logprobs ? asking++ : -1;
  }
  std::byte* const uploaded = device_.data() + logits.rows * kMaxLogprobsBytes;
  kernels::CopyAsync(uploaded, staging_.data(), reinterpret_cast<std::byte*>(end) - staging_.data(),
                     stream);
  copied_.Record(stream);
  const auto* const device_rows = reinterpret_cast<const SampleRow*>(uploaded);
  const auto* const device_out_row = reinterpret_cast<const int32_t*>(device_rows + logits.rows);
  const kernels::MatrixView<int32_t> sampled(
      reinterpret_cast<int32_t*>(device_.data() + device_.size()) - logits.rows, logits.rows, 1);
  kernels::cuda::Sample({.logits = logits,
                         .rows = device_rows,
                         .banned = device_out_row + logits.rows,
                         .tokens = sampled.data},
                        stream);
  result.tokens.Append(sampled, stream);
  if (asking == 0) return;
  const kernels::MatrixView<TokenLogprob> out(device_.As<TokenLogprob>(), asking, result.width);
  kernels::cuda::Logprobs(
      {.logits = logits, .tokens = sampled.data, .out_row = device_out_row, .out = out}, stream);
  result.logprobs.Append(out, stream);
}

void CheckSampled(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    BATON_CHECK(token != kernels::cuda::kBrokenLogits)
        << "a row of logits holds NaN or +infinity, or has no finite value";
  }
}

}  // namespace baton::engine::cuda
