#pragma once

#include <cstdint>
#include <functional>

namespace baton::kernels::cuda {

// Device memory in use as the driver has it, in bytes, other processes included.
struct MemoryUse {
  int64_t before = 0;
  int64_t most = 0;  // of some thousand looks a second while `work` ran
  int64_t after = 0;
  int64_t pools = 0;  // the most that stream-ordered allocations had reserved meanwhile
};
// `work` returns when the device has finished.
MemoryUse WatchMemory(const std::function<void()>& work);

int64_t MemoryInUse();

}  // namespace baton::kernels::cuda
