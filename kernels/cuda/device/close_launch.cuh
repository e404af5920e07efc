#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "kernels/runtime/error.h"

// Launches that do not wait for the kernel before them ("programmatic dependent launch"). In a
// decoding step kernels take a few microseconds each, and of the time from one to the next half is
// launching: so a kernel's blocks come onto the multiprocessors while the one before still runs,
// and wait there.

namespace baton::kernels::cuda {

// Returns once all that the launch comes after has ended and shows in memory; the next launch may
// begin to come. On every path of every kernel that LaunchClosely launches: before it waits a
// kernel reads only what no kernel writes, such as weights.
__device__ inline void AwaitPredecessors() {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

// Where each block fills a multiprocessor: the next launch comes when they end. Before, all of it
// would crowd onto the few multiprocessors that are left.
__device__ inline void AwaitPredecessorsAlone() {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

struct LaunchShape {
  dim3 grid;
  unsigned threads = 0;
  size_t shared_bytes = 0;
};

template <typename... Params, typename... Args>
void LaunchClosely(void (*kernel)(Params...), const LaunchShape& shape, CUstream_st* stream,
                   Args&&... args) {
  cudaLaunchAttribute closely{};
  closely.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  closely.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &closely;
  config.numAttrs = 1;
  CheckCuda(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "cudaLaunchKernelEx");
}

}  // namespace baton::kernels::cuda
