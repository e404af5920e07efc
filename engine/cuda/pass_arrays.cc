#include "engine/cuda/pass_arrays.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {

PassShape PassShape::Of(const Pass& pass, int page_tokens) {
  PassShape shape{.rows = pass.rows(), .sequences = std::ssize(pass.segments)};
  for (const Segment& segment : pass.segments) {
    shape.sequence_rows = std::max(shape.sequence_rows, segment.rows);
    if (page_tokens > 0) shape.positions = std::max(shape.positions, segment.start + segment.rows);
  }
  if (page_tokens > 0) shape.pages = (shape.positions + page_tokens - 1) / page_tokens;
  return shape;
}

PassArrays::View PassArrays::Upload(const Pass& pass, const PassShape& shape, CUstream_st* stream) {
  copied_.Synchronize();
  BATON_CHECK(shape.sequences * shape.pages <= kMaxPageIds)
      << shape.sequences << " sequences, the longest of " << shape.pages << " pages";

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
  int32_t* const tokens = take(shape.rows, view.tokens);
  int32_t* const position = take(shape.rows, batch.position);
  int32_t* const sequence = take(shape.rows, batch.sequence);
  int32_t* const row_begin = take(shape.sequences + 1, batch.row_begin);
  int32_t* const start = take(shape.sequences, batch.start);
  int32_t* const slot = take(shape.sequences, batch.slot);
  int32_t* const page_table = take(shape.sequences * shape.pages, batch.page_table);
  BATON_CHECK(used * int64_t{sizeof(int32_t)} <= staging_.size()) << used;

  constexpr int32_t kPadded = -1;
  std::fill_n(tokens, shape.rows, 0);
  std::fill_n(position, shape.rows, 0);
  std::fill_n(sequence, shape.rows, kPadded);
  std::copy(pass.tokens.begin(), pass.tokens.end(), tokens);
  std::copy(pass.positions.begin(), pass.positions.end(), position);
  // Sequences without rows begin where the last one ends.
  std::fill_n(row_begin, shape.sequences + 1, static_cast<int32_t>(pass.rows()));
  std::fill_n(start, shape.sequences, 0);
  std::fill_n(slot, shape.sequences, 0);
  for (size_t s = 0; s < pass.segments.size(); ++s) {
    const Segment& segment = pass.segments[s];
    std::fill_n(sequence + segment.first_row, segment.rows, static_cast<int32_t>(s));
    row_begin[s] = static_cast<int32_t>(segment.first_row);
    start[s] = static_cast<int32_t>(segment.start);
    slot[s] = segment.slot;
    std::copy_n(segment.pages.begin(), std::min(std::ssize(segment.pages), shape.pages),
                page_table + static_cast<int64_t>(s) * shape.pages);
  }
  batch.rows = static_cast<int>(shape.rows);
  batch.sequences = static_cast<int>(shape.sequences);
  batch.max_rows = static_cast<int>(shape.sequence_rows);
  batch.max_pages = static_cast<int>(shape.pages);

  kernels::CopyAsync(device_.data(), staging_.data(), used * int64_t{sizeof(int32_t)}, stream);
  copied_.Record(stream);
  return view;
}

}  // namespace baton::engine::cuda
