#include "engine/cuda/pass_context.h"

#include <algorithm>

#include "kernels/cuda/gemm_lt.h"

namespace baton::engine::cuda {

int64_t PassContext::max_end() const {
  int64_t end = 0;
  for (const Segment& segment : pass.segments) end = std::max(end, segment.start + segment.rows);
  return end;
}

kernels::cuda::MutableFp8Rows PassContext::Shape(kernels::cuda::MutableFp8Rows buffer,
                                                 int64_t rows) {
  buffer.rows = rows;
  buffer.scale_stride = kernels::cuda::LtMatmul::RoundUpRows(rows);
  return buffer;
}

}  // namespace baton::engine::cuda
