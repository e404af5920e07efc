#include "kernels/cuda/index_logits_sm90a.cuh"

namespace baton::kernels::cuda {

void IndexLogitsSm90a(const IndexLogitsParams& params, CUstream_st* stream) {
  LaunchIndexLogitsSm90a<IndexPolicy>(params, stream);
}

}  // namespace baton::kernels::cuda
