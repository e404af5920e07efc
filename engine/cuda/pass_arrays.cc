#include "engine/cuda/pass_arrays.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {

PassArrays::View PassArrays::Upload(const Pass& pass, CUstream_st* stream) {
  copied_.Synchronize();
  const int64_t rows = pass.rows();
  const auto sequences = static_cast<int64_t>(pass.segments.size());
  int64_t pages = 1;
  int64_t max_rows = 0;
  for (const Segment& segment : pass.segments) {
    pages = std::max(pages, std::ssize(segment.pages));
    max_rows = std::max(max_rows, segment.rows);
  }
  BATON_CHECK(sequences * pages <= kMaxPageIds)
      << sequences << " sequences, the longest of " << pages << " pages";

  auto* const host = staging_.As<int32_t>();
  const auto* const device = device_.As<const int32_t>();
  int64_t used = 0;
  // Hands out `count` elements: where to write them, and where the device will read them.
  const auto take = [&](int64_t count, const int32_t*& on_device) {
    int32_t* const on_host = host + used;
    on_device = device + used;
    used += count;
    return on_host;
  };
  View view;
  kernels::cuda::BatchView& batch = view.batch;
  int32_t* const tokens = take(rows, view.tokens);
  int32_t* const position = take(rows, batch.position);
  int32_t* const sequence = take(rows, batch.sequence);
  int32_t* const row_begin = take(sequences + 1, batch.row_begin);
  int32_t* const start = take(sequences, batch.start);
  int32_t* const slot = take(sequences, batch.slot);
  int32_t* const page_table = take(sequences * pages, batch.page_table);
  BATON_CHECK(used * int64_t{sizeof(int32_t)} <= staging_.size()) << used;

  std::copy(pass.tokens.begin(), pass.tokens.end(), tokens);
  std::copy(pass.positions.begin(), pass.positions.end(), position);
  for (int64_t s = 0; s < sequences; ++s) {
    const Segment& segment = pass.segments[s];
    std::fill_n(sequence + segment.first_row, segment.rows, static_cast<int32_t>(s));
    row_begin[s] = static_cast<int32_t>(segment.first_row);
    start[s] = static_cast<int32_t>(segment.start);
    slot[s] = segment.slot;
    std::copy(segment.pages.begin(), segment.pages.end(), page_table + s * pages);
  }
  row_begin[sequences] = static_cast<int32_t>(rows);
  batch.rows = static_cast<int>(rows);
  batch.sequences = static_cast<int>(sequences);
  batch.max_rows = static_cast<int>(max_rows);
  batch.max_pages = static_cast<int>(pages);

  kernels::CopyAsync(device_.data(), staging_.data(), used * int64_t{sizeof(int32_t)}, stream);
  copied_.Record(stream);
  return view;
}

}  // namespace baton::engine::cuda
