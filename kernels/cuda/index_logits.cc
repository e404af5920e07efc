#include "kernels/cuda/index_logits.h"

#include "kernels/runtime/device.h"

namespace baton::kernels::cuda {

void IndexLogits(const IndexLogitsParams& params, CUstream_st* stream) {
  if (CurrentDevice().compute_capability == 90) return IndexLogitsSm90a(params, stream);
  IndexLogitsPortable(params, stream);
}

}  // namespace baton::kernels::cuda
