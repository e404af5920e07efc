#pragma once

#include <cstdint>

// FP4 weights as ExpertBank packs them: blocks of 64 rows and 128 columns; the four blocks of a
// tile's 256 rows follow each other, then the next 128 columns.
//
// A block begins with 4,096 bytes of codes: for each half of its columns and each thread of the
// warpgroup that multiplies it 16 bytes, which are the thread's share of the left operand
// (device/wgmma.cuh): two words for 32 columns, two more for the next 32. A word holds eight
// codes: the magnitudes of one register's four bytes in the nibbles of its low half, those of the
// next register's in its high half. The top bits of nibbles are free, since __byte_perm wants them
// zero: bit 8 c + 7 is the sign of byte c of the first register, bit 8 c + 3 that of the second.
//
// Then 256 bytes: for each warp and lane / 4 the `half` (below) of row and of row + 8, four bytes
// each, for 32 columns each.

namespace baton::kernels::cuda {

inline constexpr int kTileRows = 256;
inline constexpr int kBlockRows = 64;
inline constexpr int kTileBlocks = kTileRows / kBlockRows;
inline constexpr int kBlockColumns = 128;
inline constexpr int kBlockCodeBytes = kBlockRows * kBlockColumns / 2;
inline constexpr int kBlockHalfBytes = kBlockRows * kBlockColumns / 32;
inline constexpr int kBlockBytes = kBlockCodeBytes + kBlockHalfBytes;

// Offsets into a block, for thread 0 to 127 of a warpgroup.
__device__ inline int BlockCodes(int half_of_columns, int thread) {
  return (half_of_columns * 128 + thread) * 16;
}
__device__ inline int BlockHalves(int thread) {
  return kBlockCodeBytes + (thread / 32 * 8 + thread % 32 / 4) * 8;
}

// E4M3 has room for FP4 codes under eleven different scales, exactly: `half` is the E4M3 code of
// what 0.5 stands for, 8 (2^-6) to 96 (2^5) in steps of 8, and all other magnitudes follow from it.
inline constexpr int kSmallestHalf = 8;
inline constexpr int kLargestHalf = 96;
struct Magnitudes {
  uint32_t low;   // of codes 0 to 3: 0, 0.5, 1, 1.5
  uint32_t high;  // of codes 4 to 7: 2, 3, 4, 6
};
__device__ inline Magnitudes MagnitudesOf(uint32_t half) {
  return {half * 0x01010100u + 0x0c080000u, half * 0x01010101u + 0x1c181410u};
}

// Byte c of a register, as a word's share: `second` tells the two registers of a word apart.
__device__ inline uint32_t PlaceCode(uint32_t code, int c, bool second) {
  const uint32_t sign = code >> 3 & 1;
  const uint32_t magnitude = code & 7;
  return second ? magnitude << (16 + 4 * c) | sign << (8 * c + 3)
                : magnitude << (4 * c) | sign << (8 * c + 7);
}

// Two registers from a word.
__device__ inline void WidenWord(uint32_t word, const Magnitudes& row, const Magnitudes& next_row,
                                 uint32_t* a) {
  constexpr uint32_t kSigns = 0x80808080u;
  const uint32_t magnitudes = word & 0x77777777u;
  a[0] = __byte_perm(row.low, row.high, magnitudes) | (word & kSigns);
  a[1] = __byte_perm(next_row.low, next_row.high, magnitudes >> 16) | (word << 4 & kSigns);
}

// The left operands of a block's 128 columns: four registers for every 32.
__device__ inline void WidenBlock(const std::byte* block, int thread, uint32_t (&a)[16]) {
  const uint2 halves = *reinterpret_cast<const uint2*>(block + BlockHalves(thread));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 codes = *reinterpret_cast<const uint4*>(block + BlockCodes(i, thread));
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint32_t byte = 0x4440 + 2 * i + k;
      const Magnitudes row = MagnitudesOf(__byte_perm(halves.x, 0, byte));
      const Magnitudes next_row = MagnitudesOf(__byte_perm(halves.y, 0, byte));
      WidenWord(words[2 * k], row, next_row, a + 8 * i + 4 * k);
      WidenWord(words[2 * k + 1], row, next_row, a + 8 * i + 4 * k + 2);
    }
  }
}

}  // namespace baton::kernels::cuda
