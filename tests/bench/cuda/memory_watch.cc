#include "tests/bench/cuda/memory_watch.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <cuda_runtime_api.h>

#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {
namespace {

cudaMemPool_t DefaultPool() {
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaMemPool_t pool = nullptr;
  CheckCuda(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
  return pool;
}

}  // namespace

int64_t MemoryInUse() {
  const DeviceMemoryUse memory = MemoryOfCurrentDevice();
  return memory.total - memory.free;
}

MemoryUse WatchMemory(const std::function<void()>& work) {
  const cudaMemPool_t pool = DefaultPool();
  uint64_t reserved = 0;  // setting the high-water mark to 0 sets it to what is reserved now
  CheckCuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &reserved),
            "cudaMemPoolSetAttribute");
  MemoryUse use{.before = MemoryInUse()};
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    while (!done) use.most = std::max(use.most, MemoryInUse());
  });
  work();
  done = true;
  watcher.join();
  use.after = MemoryInUse();
  use.most = std::max({use.most, use.before, use.after});
  CheckCuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &reserved),
            "cudaMemPoolGetAttribute");
  use.pools = static_cast<int64_t>(reserved);
  return use;
}

}  // namespace baton::kernels::cuda
