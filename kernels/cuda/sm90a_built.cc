#include "kernels/cuda/variants.h"
#include "kernels/runtime/device.h"

namespace baton::kernels::cuda {

bool HasSm90a() { return CurrentDevice().compute_capability == 90; }

}  // namespace baton::kernels::cuda
