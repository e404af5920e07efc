#pragma once

#include <cstdint>

#include <cuda_bf16.h>

// FP4 weights as ExpertBank packs them: chunks of 256 rows and 64 columns.
//
// A chunk is first 8,192 bytes of codes: for each of its 4 blocks of 64 rows and each thread of the
// warpgroup that multiplies the block, 16 bytes, which are the thread's share of the left operand
// (grouped_wgmma.cuh): word j for columns 16 j .. 16 j + 15, the low halves for the even columns.
// A half word holds a value for each of the four registers, its sign and its three other bits:
//   register 0  bit 15, bits 8-6      register 1  bit 12, bits 5-3
//   register 2  bit 14, bits 2-0      register 3  bit 13, bits 11-9
// so that shifts and masks turn them into BF16 scaled by 2^-126: ALU instructions are what bounds
// products with few slots.
// Then 512 bytes of scales: for each block, warp and lane / 4 the exponent fields of the BF16
// multipliers of (row, columns 0-31), (row + 8, 0-31), (row, 32-63), (row + 8, 32-63).

namespace baton::kernels::cuda {

inline constexpr int kChunkRows = 256;
inline constexpr int kChunkColumns = 64;
inline constexpr int kChunkCodeBytes = kChunkRows * kChunkColumns / 2;
inline constexpr int kChunkBytes = kChunkCodeBytes + kChunkRows * kChunkColumns / 32;

// Offsets into a chunk, for block 0 to 3 and thread 0 to 127 of a warpgroup.
__device__ inline int ChunkCodes(int block, int thread) { return (block * 128 + thread) * 16; }
__device__ inline int ChunkScales(int block, int thread) {
  return kChunkCodeBytes + ((block * 4 + thread / 32) * 8 + thread % 32 / 4) * 4;
}

// A code whose half word is otherwise empty, for register 0 to 3.
__device__ inline uint32_t PlaceCode(uint32_t code, int reg) {
  const uint32_t sign = code >> 3 & 1;
  const uint32_t rest = code & 7;
  switch (reg) {
    case 0:
      return sign << 15 | rest << 6;
    case 1:
      return sign << 12 | rest << 3;
    case 2:
      return sign << 14 | rest;
    default:
      return sign << 13 | rest << 9;
  }
}

__device__ inline uint32_t MultiplyBf16(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                         *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// The left operand of columns 16 j .. 16 j + 15 from word j of the codes.
__device__ inline void WidenCodes(uint32_t word, uint32_t row_scale, uint32_t next_row_scale,
                                  uint32_t* a) {
  constexpr uint32_t kSign = 0x80008000u;
  constexpr uint32_t kRest = 0x01c001c0u;
  a[0] = MultiplyBf16(word & (kSign | kRest), row_scale);
  a[1] = MultiplyBf16(word << 3 & (kSign | kRest), next_row_scale);
  a[2] = MultiplyBf16((word << 1 & kSign) | (word << 6 & kRest), row_scale);
  a[3] = MultiplyBf16((word << 2 & kSign) | (word >> 3 & kRest), next_row_scale);
}

// A thread's left operands of all 64 columns of a block.
__device__ inline void WidenBlock(const uint4& codes, uint32_t scales, uint32_t (&a)[16]) {
  const uint32_t scale[4] = {
      __byte_perm(scales, 0, 0x4040) << 7, __byte_perm(scales, 0, 0x4141) << 7,
      __byte_perm(scales, 0, 0x4242) << 7, __byte_perm(scales, 0, 0x4343) << 7};
  WidenCodes(codes.x, scale[0], scale[1], a);
  WidenCodes(codes.y, scale[0], scale[1], a + 4);
  WidenCodes(codes.z, scale[2], scale[3], a + 8);
  WidenCodes(codes.w, scale[2], scale[3], a + 12);
}

}  // namespace baton::kernels::cuda
