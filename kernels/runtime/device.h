#pragma once

#include <cstdint>
#include <string>

namespace baton::kernels {

struct DeviceInfo {
  std::string name;
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
};

struct DeviceMemoryUse {
  int64_t free = 0;
  int64_t total = 0;
};

int DeviceCount();          // 0 where no driver or no card is found
void UseDevice(int index);  // makes it the calling thread's current device
const DeviceInfo& CurrentDevice();
DeviceMemoryUse MemoryOfCurrentDevice();  // now, other processes included

}  // namespace baton::kernels
