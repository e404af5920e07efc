#include "kernels/cuda/device/vector.cuh"
#include "kernels/runtime/error.h"
#include "tests/bench/cuda/ceilings.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;

int Blocks(int64_t vectors) {
  return static_cast<int>((vectors + kThreads * kUnroll - 1) / (kThreads * kUnroll));
}

__global__ void Copy(const Vector16* source, Vector16* target, int64_t vectors) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x;
  Vector16 values[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * kThreads < vectors) values[i] = source[first + i * kThreads];
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * kThreads < vectors) target[first + i * kThreads] = values[i];
  }
}

__global__ void Read(const Vector16* source, int64_t vectors, Vector16* sink) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x;
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * kThreads < vectors) {
      const Vector16 value = source[first + i * kThreads];
      sum |= value.x ^ value.y ^ value.z ^ value.w;
    }
  }
  if (sum == 0x12345678u) sink[0] = {sum, sum, sum, sum};  // keeps the loads alive
}

__global__ void Random(uint32_t* words, int64_t count, uint32_t seed) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint64_t x = (static_cast<uint64_t>(seed) << 40) + static_cast<uint64_t>(i);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;  // splitmix64
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  // Sign and mantissa random, exponent field 123 to 128.
  const auto half = [](uint32_t bits) {
    const uint32_t exponent = 123 + ((bits >> 8) & 0xff) * 6 / 256;
    return (bits & 0x80000000u) >> 16 | exponent << 7 | (bits & 0x7fu);
  };
  words[i] = half(static_cast<uint32_t>(x)) | half(static_cast<uint32_t>(x >> 32)) << 16;
}

}  // namespace

void CopyBytes(const void* source, void* target, int64_t bytes, CUstream_st* stream) {
  Copy<<<Blocks(bytes / 16), kThreads, 0, stream>>>(static_cast<const Vector16*>(source),
                                                    static_cast<Vector16*>(target), bytes / 16);
  CheckLaunch("Copy");
}

void ReadBytes(const void* source, int64_t bytes, void* sink, CUstream_st* stream) {
  Read<<<Blocks(bytes / 16), kThreads, 0, stream>>>(static_cast<const Vector16*>(source),
                                                    bytes / 16, static_cast<Vector16*>(sink));
  CheckLaunch("Read");
}

void FillRandom(void* target, int64_t bytes, uint32_t seed, CUstream_st* stream) {
  const int64_t words = bytes / 4;
  const int blocks = static_cast<int>((words + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  Random<<<blocks, kThreads, 0, stream>>>(static_cast<uint32_t*>(target), words, seed);
  CheckLaunch("Random");
}

}  // namespace baton::kernels::cuda
