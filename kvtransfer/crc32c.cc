#include "kvtransfer/crc32c.h"

#include <array>
#include <cstring>

#include "common/base/check.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace baton::kvtransfer {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;

// Entry [k][b] is the register after byte b followed by k zero bytes.
using SlicingTable = std::array<std::array<uint32_t, 256>, 8>;

constexpr SlicingTable MakeSlicingTable() {
  SlicingTable table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[0][byte] = value;
  }
  for (size_t k = 1; k < table.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = table[k - 1][byte];
      table[k][byte] = (previous >> 8) ^ table[0][previous & 0xFF];
    }
  }
  return table;
}
constexpr SlicingTable kSlicing = MakeSlicingTable();

uint64_t LoadWord(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

uint32_t UpdateByte(uint32_t state, std::byte byte) {
  return (state >> 8) ^ kSlicing[0][(state ^ static_cast<uint32_t>(byte)) & 0xFF];
}

#if defined(__x86_64__)

// The instruction has a latency of three cycles and a throughput of one, so three independent
// chains over neighbouring blocks keep it busy. To join them, the first chain's register is moved
// over the zeros that stand for the next block; that is linear, hence a table per register byte.
constexpr size_t kLongBlock = 8192;  // bytes of one chain
constexpr size_t kShortBlock = 256;

using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

ShiftTable MakeShiftTable(size_t zero_bytes) {
  ShiftTable table;
  for (size_t position = 0; position < table.size(); ++position) {
    std::array<uint32_t, 8> columns;  // the images of the eight single bits
    for (size_t bit = 0; bit < 8; ++bit) {
      uint32_t state = uint32_t{1} << (8 * position + bit);
      for (size_t i = 0; i < zero_bytes; ++i) state = UpdateByte(state, std::byte{0});
      columns[bit] = state;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      uint32_t sum = 0;
      for (size_t bit = 0; bit < 8; ++bit) sum ^= ((byte >> bit) & 1) != 0 ? columns[bit] : 0;
      table[position][byte] = sum;
    }
  }
  return table;
}

uint32_t Shift(const ShiftTable& table, uint32_t state) {
  return table[0][state & 0xFF] ^ table[1][(state >> 8) & 0xFF] ^ table[2][(state >> 16) & 0xFF] ^
         table[3][state >> 24];
}

void StoreWord(uint64_t word, std::byte* to) { std::memcpy(to, &word, sizeof(word)); }

// Consumes as many triples of blocks as `left` holds; with kCopy they go to `to` as well.
template <bool kCopy>
__attribute__((target("sse4.2"))) uint64_t UpdateTriples(uint64_t state, size_t block,
                                                         const ShiftTable& shift,
                                                         const std::byte** data, size_t* left,
                                                         std::byte** to) {
  while (*left >= 3 * block) {
    const std::byte* from = *data;
    uint64_t first = state;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t at = 0; at < block; at += sizeof(uint64_t)) {
      const uint64_t a = LoadWord(from + at);
      const uint64_t b = LoadWord(from + block + at);
      const uint64_t c = LoadWord(from + 2 * block + at);
      first = _mm_crc32_u64(first, a);
      second = _mm_crc32_u64(second, b);
      third = _mm_crc32_u64(third, c);
      if constexpr (kCopy) {
        StoreWord(a, *to + at);
        StoreWord(b, *to + block + at);
        StoreWord(c, *to + 2 * block + at);
      }
    }
    if constexpr (kCopy) *to += 3 * block;
    state = Shift(shift, static_cast<uint32_t>(first)) ^ second;
    state = Shift(shift, static_cast<uint32_t>(state)) ^ third;
    *data += 3 * block;
    *left -= 3 * block;
  }
  return state;
}

template <bool kCopy>
__attribute__((target("sse4.2"))) uint32_t UpdateHardware(uint32_t crc, const std::byte* data,
                                                          size_t left, std::byte* to) {
  static const ShiftTable long_shift = MakeShiftTable(kLongBlock);
  static const ShiftTable short_shift = MakeShiftTable(kShortBlock);
  uint64_t state = crc;
  state = UpdateTriples<kCopy>(state, kLongBlock, long_shift, &data, &left, &to);
  state = UpdateTriples<kCopy>(state, kShortBlock, short_shift, &data, &left, &to);
  if constexpr (kCopy) std::memcpy(to, data, left);
  for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), data += sizeof(uint64_t)) {
    state = _mm_crc32_u64(state, LoadWord(data));
  }
  for (; left > 0; --left, ++data) {
    state = _mm_crc32_u8(static_cast<uint32_t>(state), static_cast<uint8_t>(*data));
  }
  return static_cast<uint32_t>(state);
}

#endif

}  // namespace

uint32_t Crc32cTable(std::span<const std::byte> bytes, uint32_t crc) {
  uint32_t state = ~crc;
  const std::byte* data = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, data += 8) {
    uint32_t low = state;
    for (int i = 0; i < 4; ++i) low ^= static_cast<uint32_t>(data[i]) << (8 * i);
    state = kSlicing[7][low & 0xFF] ^ kSlicing[6][(low >> 8) & 0xFF] ^
            kSlicing[5][(low >> 16) & 0xFF] ^ kSlicing[4][low >> 24];
    for (int i = 4; i < 8; ++i) state ^= kSlicing[7 - i][static_cast<size_t>(data[i])];
  }
  for (; left > 0; --left, ++data) state = UpdateByte(state, *data);
  return ~state;
}

bool HasHardwareCrc32c() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
#else
  return false;
#endif
}

uint32_t Crc32cHardware(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  return ~UpdateHardware<false>(~crc, bytes.data(), bytes.size(), nullptr);
#else
  BATON_CHECK(false) << "no CRC-32C instruction; crc " << crc << " over " << bytes.size();
  return 0;
#endif
}

uint32_t Crc32cCopy(std::span<const std::byte> bytes, std::byte* to, uint32_t crc) {
#if defined(__x86_64__)
  if (HasHardwareCrc32c()) {
    return ~UpdateHardware<true>(~crc, bytes.data(), bytes.size(), to);
  }
#endif
  std::memcpy(to, bytes.data(), bytes.size());
  return Crc32cTable({to, bytes.size()}, crc);
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  return HasHardwareCrc32c() ? Crc32cHardware(bytes, crc) : Crc32cTable(bytes, crc);
}

}  // namespace baton::kvtransfer
