#include "kernels/runtime/device.h"

#include <map>
#include <mutex>

#include <cuda_runtime_api.h>

#include "kernels/runtime/error.h"

namespace baton::kernels {

namespace {

DeviceInfo Describe(int index) {
  cudaDeviceProp properties{};
  CheckCuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {.name = properties.name,
          .compute_capability = 10 * properties.major + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .l2_bytes = properties.l2CacheSize,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
}

}  // namespace

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void UseDevice(int index) { CheckCuda(cudaSetDevice(index), "cudaSetDevice"); }

DeviceMemoryUse MemoryOfCurrentDevice() {
  size_t free = 0;
  size_t total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {.free = static_cast<int64_t>(free), .total = static_cast<int64_t>(total)};
}

const DeviceInfo& CurrentDevice() {
  static std::mutex mutex;
  static std::map<int, DeviceInfo> known;
  int index = 0;
  CheckCuda(cudaGetDevice(&index), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  const auto found = known.find(index);
  return found != known.end() ? found->second : known.emplace(index, Describe(index)).first->second;
}

}  // namespace baton::kernels
