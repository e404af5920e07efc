#include "kernels/cuda/index_query.cuh"

namespace baton::kernels::cuda {

void IndexQuery(const IndexQueryParams& params, CUstream_st* stream) {
  LaunchIndexQuery<RotatedQuery>(params, stream);
}

}  // namespace baton::kernels::cuda
