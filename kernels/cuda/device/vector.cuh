#pragma once

#include <cstdint>

// 16 bytes at a time: the widest access of a thread. Addresses are multiples of the access.

namespace baton::kernels::cuda {

// Eight BF16, four FP32 or sixteen bytes, as raw words.
using Vector16 = uint4;

__device__ inline Vector16 Load16(const void* source) {
  return *static_cast<const Vector16*>(source);
}
// For data that this launch only reads and reads once: it does not displace what others re-read.
__device__ inline Vector16 LoadStreaming16(const void* source) {
  return __ldcs(static_cast<const Vector16*>(source));
}
__device__ inline void Store16(void* target, const Vector16& value) {
  *static_cast<Vector16*>(target) = value;
}
// For what nobody reads again soon: it is the first to leave L2.
template <typename T>
__device__ inline void StoreStreaming(T* target, const T& value) {
  __stcs(target, value);
}

}  // namespace baton::kernels::cuda
