#include "engine/cuda/device_sampler.h"

#include <algorithm>

#include "common/base/check.h"
#include "engine/sampler/logprobs.h"
#include "kernels/cuda/logit_adjustments.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sampler.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {
namespace {

using kernels::LogitAdjustment;
using kernels::cuda::SampleRow;

// Ids that would end the sequence too early, at most so many a row.
constexpr int64_t kMaxBanned = static_cast<int64_t>(kMaxStopTokenIds) + 1;
// Of one launch, at least those of a row: no token has two.
constexpr int64_t kMaxAdjustments = kernels::cuda::kMaxSampleVocabulary;
constexpr int64_t kMaxLogprobsBytes = (1 + kMaxTopLogprobs) * int64_t{sizeof(TokenLogprob)};

// What is uploaded, one after the other; `banned` has no end of its own.
struct Upload {
  SampleRow* rows;
  LogitAdjustment* adjustments;
  int32_t* out_row;
  int32_t* banned;

  Upload(std::byte* begin, int64_t row_count, int64_t adjustment_count)
      : rows(reinterpret_cast<SampleRow*>(begin)),
        adjustments(reinterpret_cast<LogitAdjustment*>(rows + row_count)),
        out_row(reinterpret_cast<int32_t*>(adjustments + adjustment_count)),
        banned(out_row + row_count) {}
};

// Rows of a call that are sampled together.
struct Group {
  int64_t rows = 0;
  int64_t adjustments = 0;  // of all of them
};

// The first rows, as many as have room for their adjustments.
Group FirstGroup(std::span<const RowSampling> sampling) {
  Group group;
  for (const RowSampling& row : sampling) {
    const int64_t more = std::ssize(row.adjustments);
    if (group.adjustments + more > kMaxAdjustments) break;
    group.adjustments += more;
    ++group.rows;
  }
  return group;
}

LogitAdjustment* AppendAdjustments(const RowSampling& sampling, int64_t row, LogitAdjustment* end) {
  for (LogitAdjustment adjustment : sampling.adjustments) {
    adjustment.row = static_cast<int32_t>(row);
    *end++ = adjustment;
  }
  return end;
}

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
                     (2 + kMaxBanned) * int64_t{sizeof(int32_t)}) +
         kMaxAdjustments * int64_t{sizeof(LogitAdjustment) + sizeof(float)};
}

void DeviceSampler::Sample(kernels::MatrixView<float> logits, std::span<const RowSampling> sampling,
                           SampledRows& result, CUstream_st* stream) {
  BATON_CHECK(std::ssize(sampling) == logits.rows && Bytes(logits.rows) <= device_.size())
      << sampling.size() << " of " << logits.rows << " rows";
  for (int64_t done = 0; done < logits.rows;) {
    const std::span<const RowSampling> rest = sampling.subspan(done);
    const auto [rows, adjustments] = FirstGroup(rest);
    BATON_CHECK(rows > 0) << rest.front().adjustments.size() << " adjustments of a row";
    SampleGroup(logits.Rows(done, rows), rest.first(rows), adjustments, result, stream);
    done += rows;
  }
}

void DeviceSampler::SampleGroup(kernels::MatrixView<float> logits,
                                std::span<const RowSampling> sampling, int64_t adjustments,
                                SampledRows& result, CUstream_st* stream) {
  copied_.Synchronize();
  const Upload host(staging_.data(), logits.rows, adjustments);
  LogitAdjustment* adjustments_end = host.adjustments;
  int32_t* end = host.banned;
  int32_t asking = 0;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const SamplingParams& params = *sampling[i].params;
    host.rows[i] = {.temperature = params.temperature,
                    .top_p = params.top_p,
                    .min_p = params.min_p,
                    .top_k = params.top_k,
                    .seed = params.seed,
                    .position = sampling[i].point.position,
                    .banned_begin = static_cast<int32_t>(end - host.banned)};
    end = AppendBanned(sampling[i], end);
    host.rows[i].banned_count = static_cast<int32_t>(end - host.banned) - host.rows[i].banned_begin;
    host.out_row[i] = sampling[i].top_logprobs ? asking++ : -1;
    adjustments_end = AppendAdjustments(sampling[i], i, adjustments_end);
  }
  std::byte* const uploaded = device_.data() + logits.rows * kMaxLogprobsBytes;
  kernels::CopyAsync(uploaded, staging_.data(), reinterpret_cast<std::byte*>(end) - staging_.data(),
                     stream);
  copied_.Record(stream);
  const Upload device(uploaded, logits.rows, adjustments);
  const kernels::MatrixView<int32_t> sampled(
      reinterpret_cast<int32_t*>(device_.data() + device_.size()) - logits.rows, logits.rows, 1);
  const kernels::cuda::AdjustLogitsParams adjust{
      .logits = logits,
      .adjustments = device.adjustments,
      .before = reinterpret_cast<float*>(sampled.data) - adjustments,
      .count = adjustments};
  kernels::cuda::AdjustLogits(adjust, stream);
  kernels::cuda::Sample(
      {.logits = logits, .rows = device.rows, .banned = device.banned, .tokens = sampled.data},
      stream);
  result.tokens.Append(sampled, stream);
  if (asking == 0) return;
  kernels::cuda::RestoreLogits(adjust, stream);
  const kernels::MatrixView<TokenLogprob> out(device_.As<TokenLogprob>(), asking, result.width);
  kernels::cuda::Logprobs(
      {.logits = logits, .tokens = sampled.data, .out_row = device.out_row, .out = out}, stream);
  result.logprobs.Append(out, stream);
}

void CheckSampled(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    BATON_CHECK(token != kernels::cuda::kBrokenLogits)
        << "a row of logits holds NaN or +infinity, or has no finite value";
  }
}

}  // namespace baton::engine::cuda
