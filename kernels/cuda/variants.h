#pragma once

#include <cstdint>
#include <string>

namespace baton::kernels::cuda {

// Ops bound by tensor cores have two variants: wgmma (`*_sm90a.cu`), which runs on compute
// capability 9.0 alone and is built only if BATON_CUDA_ARCHITECTURES names 90a, and mma.sync
// (`*_portable.cu`), which needs compute capability 9.0 or later and 99 KiB of shared memory.

// Whether the current device runs the wgmma variants of this build. Calling one of them otherwise
// ends the process.
bool HasSm90a();
// What a device of that compute capability, or the build, lacks for bits of a row that do not
// depend on how many rows there are (gemm_small.h): the wgmma variants. In words; empty: nothing.
std::string WhatDeterminismLacks(int compute_capability, bool has_sm90a);

// To be asked at start, before anything is launched. In words; empty: nothing is lacking.
std::string WhatDeviceLacks();  // the current device, for this build

// What kernels have limits for; either variant has the same.
struct ModelShape {
  int heads = 0;
  int index_heads = 0;
  int index_topk = 0;
  int64_t hidden = 0;
  int64_t expert_width = 0;
  int experts = 0;
};
std::string WhatKernelsLack(const ModelShape& shape);

}  // namespace baton::kernels::cuda
