#include "kernels/cuda/index_logits_portable.cuh"

namespace baton::kernels::cuda {

void IndexLogitsPortable(const IndexLogitsParams& params, CUstream_st* stream) {
  LaunchIndexLogitsPortable<IndexPolicy>(params, stream);
}

}  // namespace baton::kernels::cuda
