#include "kernels/cuda/index_logits.h"

#include "kernels/cuda/variants.h"

namespace baton::kernels::cuda {

void IndexLogits(const IndexLogitsParams& params, CUstream_st* stream) {
  if (HasSm90a()) return IndexLogitsSm90a(params, stream);
  IndexLogitsPortable(params, stream);
}

}  // namespace baton::kernels::cuda
