#include "kernels/runtime/buffer.h"

#include <cuda_runtime_api.h>

#include "kernels/runtime/error.h"

namespace baton::kernels {

namespace {

std::byte* Allocated(cudaError_t error, void* data, const char* call) {
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // or the next launch check would report it
    return nullptr;
  }
  CheckCuda(error, call);
  return static_cast<std::byte*>(data);
}

}  // namespace

std::byte* DeviceMemory::Allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  return Allocated(error, data, "cudaMalloc");
}

void DeviceMemory::Free(std::byte* data) { CheckCuda(cudaFree(data), "cudaFree"); }

std::byte* PinnedMemory::Allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  return Allocated(error, data, "cudaMallocHost");
}

void PinnedMemory::Free(std::byte* data) { CheckCuda(cudaFreeHost(data), "cudaFreeHost"); }

}  // namespace baton::kernels
