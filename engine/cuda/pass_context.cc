#include "engine/cuda/pass_context.h"

#include "kernels/cuda/gemm_lt.h"

namespace baton::engine::cuda {

kernels::cuda::MutableFp8Rows PassContext::Shape(kernels::cuda::MutableFp8Rows buffer,
                                                 int64_t rows) {
  buffer.rows = rows;
  buffer.scale_stride = kernels::cuda::LtMatmul::RoundUpRows(rows);
  return buffer;
}

}  // namespace baton::engine::cuda
