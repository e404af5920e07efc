#pragma once

#include <cstdint>

#include "kernels/cuda/batch.h"
#include "kernels/cuda/device/vector.cuh"

namespace baton::kernels::cuda {

template <typename T>
__device__ inline T* RingRow(const SlotRings<T>& ring, int slot, int position) {
  return ring.data + slot * ring.slot_stride + int64_t{position % ring.rows} * ring.width;
}

// Row of a bias table [rows, width / 2] for `position`; null without a table.
__device__ inline const float* BiasRow(const float* bias, int rows, int width, int position) {
  return bias == nullptr ? nullptr : bias + int64_t{position % rows} * (width / 2);
}

// A row on its way to a ring: the second half of an FP32 row gets `bias` added, unless that is
// null.
template <typename T>
struct RingSource {
  const T* row = nullptr;
  const float* bias = nullptr;
};

__device__ inline float4 LoadFloat4(const float* source) {
  return *reinterpret_cast<const float4*>(source);
}
__device__ inline float4 Add(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Copies a row of `width` elements; thread `thread` of `threads` takes its share.
template <typename T>
__device__ inline void CopyToRing(const RingSource<T>& source, int width, int thread, int threads,
                                  T* target) {
  constexpr int kPerVector = 16 / sizeof(T);
#pragma unroll 4
  for (int i = thread * kPerVector; i < width; i += threads * kPerVector) {
    if constexpr (sizeof(T) == sizeof(float)) {
      float4 value = LoadFloat4(source.row + i);
      if (source.bias != nullptr && i >= width / 2) {
        value = Add(value, LoadFloat4(source.bias + i - width / 2));
      }
      *reinterpret_cast<float4*>(target + i) = value;
    } else {
      Store16(target + i, Load16(source.row + i));
    }
  }
}

}  // namespace baton::kernels::cuda
