#pragma once

#include "kernels/cuda/entry_store.h"

namespace baton::kernels::cuda {

// Keeps an address in registers: the compiler would put it together again for each access.
template <typename T>
__device__ inline T* Held(T* address) {
  asm volatile("" : "+l"(address));
  return address;
}
__device__ inline int Held(int index) {
  asm volatile("" : "+r"(index));
  return index;
}
__device__ inline uint32_t Held(uint32_t address) {
  asm volatile("" : "+r"(address));
  return address;
}

// Where a row goes.
struct EntryTarget {
  int sequence = -1;  // -1: nowhere
  int entry = 0;

  __device__ bool is_somewhere() const { return sequence >= 0; }
  // What rows that go nowhere are treated as, which is cheaper than a branch.
  __device__ EntryTarget OrFirst() const { return is_somewhere() ? *this : EntryTarget{0, 0}; }
};

__device__ inline EntryTarget TargetOf(const StoreEntriesParams& params, int row, int rows) {
  if (row >= rows) return {};
  return {.sequence = params.sequence[row], .entry = params.entry[row]};
}

}  // namespace baton::kernels::cuda
