#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/parallel.h"

// Scattered pieces of memory (pages, rows of state) <-> one contiguous staging buffer, with a
// digest of what passed.

namespace baton::kernels {

// `bytes` at `data` belong at `offset` of the staging buffer. Segments of one call follow each
// other without gaps: the first lies at 0, each next one where its predecessor ends. Everything is
// a multiple of 4 bytes; multiples of 16 travel faster on a device.
struct Segment {
  std::byte* data = nullptr;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Digest kMulSum64 of a buffer of little-endian 32-bit words w_i:
//   sum_i a_i w_i mod 2^64,  a_i = rotl(mix((i / 4 + 1) * 0x9e3779b97f4a7c15), 16 * (i mod 4)) | 1,
// mix being the finaliser of splitmix64. Factors are odd, so that a change of one word always
// shows; everything else is missed once in 2^64. The sum may be taken in any order and in parts,
// which is why it is not a CRC. It guards against faults, not against forgery; a buffer of zeros
// has digest 0, so lengths are to be compared apart.
inline constexpr uint8_t kMulSum64 = 1;  // as it stands in a manifest

constexpr uint64_t DigestFactors(uint64_t vector) {  // of words 4 * vector .. 4 * vector + 3
  uint64_t x = (vector + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
constexpr uint64_t DigestTerm(uint64_t factors, int lane, uint32_t word) {
  const int turn = 16 * lane;
  const uint64_t factor = lane == 0 ? factors : factors << turn | factors >> (64 - turn);
  return (factor | 1) * word;
}

// staging[offset ...] = data for every segment; returns the digest of the staging buffer.
uint64_t GatherSegments(std::span<const Segment> segments, std::byte* staging, ThreadPool& pool);
// The other way; returns the digest of what was read from the staging buffer.
uint64_t ScatterSegments(std::span<const Segment> segments, const std::byte* staging,
                         ThreadPool& pool);

}  // namespace baton::kernels
