#pragma once

#include <cstdint>

// Tensor-core products of one warp (mma.sync), on every architecture from sm_80 on
// (StoreMatrices: from sm_90 on).

namespace baton::kernels::cuda {

// Four 8 x 8 matrices of 16-bit values: lane i gives the shared-memory address of row i % 8 of
// matrix i / 8; lane i receives values 2 (i % 4), + 1 of row i / 4 of each.
__device__ inline void LoadMatrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// The same, each matrix transposed.
__device__ inline void LoadMatricesTransposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The reverse of LoadMatrices: lane i gives where row i % 8 of matrix i / 8 goes.
__device__ inline void StoreMatrices(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2,
                                     uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// d[16 x 8] += a[16 x 16] b[16 x 8], BF16 in, FP32 out. Lane i holds of d: row i / 4, columns
// 2 (i % 4), + 1 in d[0], d[1]; row i / 4 + 8 in d[2], d[3].
__device__ inline void Mma16x8x16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Tiles in shared memory are blocks of 64 BF16 channels: rows of 128 bytes in which 16-byte piece c
// of row r stands at c ^ (r % 8), which is what wgmma calls a 128-byte swizzle and what keeps
// ldmatrix and row-wise stores free of bank conflicts. Blocks start at multiples of 1,024 bytes.
__device__ inline int SwizzledOffset(int row, int piece) {
  return row * 128 + ((piece ^ (row & 7)) << 4);
}

}  // namespace baton::kernels::cuda
