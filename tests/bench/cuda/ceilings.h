#pragma once

#include <cstdint>

struct CUstream_st;

namespace baton::kernels::cuda {

// The simplest kernels that move bytes: what an op that is bound by memory is measured against.
// Sizes are multiples of 16 bytes.
void CopyBytes(const void* source, void* target, int64_t bytes, CUstream_st* stream);
void ReadBytes(const void* source, int64_t bytes, void* sink, CUstream_st* stream);
// Fills `bytes` with random finite BF16 values of magnitude 2^-4 to 4.
void FillRandom(void* target, int64_t bytes, uint32_t seed, CUstream_st* stream);

}  // namespace baton::kernels::cuda
