#include "kernels/crc32c.h"

#include <array>
#include <cstring>

#include "common/base/check.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace baton::kernels {
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
// Both sizes are multiples of a cache line.
constexpr size_t kLongBlock = 1024;  // bytes of one chain: the processor asks for all three in time
constexpr size_t kShortBlock = 192;  // three are the values of one packed cache entry
constexpr size_t kLine = 64;

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

enum class To : uint8_t { kNowhere, kCache, kMemory };

// A word that may be changed by others: what is stored is what has been hashed.
uint64_t LoadOnce(const std::byte* from) {
  uint64_t word = LoadWord(from);
  asm("" : "+r"(word));  // the compiler does not read it again
  return word;
}

// At to[at]; `to` is null where nothing is stored.
template <To kTo>
void StoreWord(uint64_t word, std::byte* to, size_t at) {
  if constexpr (kTo == To::kCache) std::memcpy(to + at, &word, sizeof(word));
  if constexpr (kTo == To::kMemory) {
    _mm_stream_si64(reinterpret_cast<long long*>(to + at), static_cast<long long>(word));
  }
}

// Consumes as many triples of blocks as `left` holds.
template <To kTo, size_t kBlock>
__attribute__((target("sse4.2"))) uint64_t UpdateTriples(uint64_t state, const ShiftTable& shift,
                                                         const std::byte** data, size_t* left,
                                                         std::byte** to) {
  // Cold memory comes in the order in which it is asked for: three places of one page at a time
  // are more than the processor foresees.
  constexpr size_t kAhead = 2 * 3 * kBlock;
  while (*left >= 3 * kBlock) {
    const std::byte* from = *data;
    uint64_t first = state;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t line = 0; line < kBlock; line += kLine) {
      for (size_t chain = 0; chain < 3; ++chain) {
        __builtin_prefetch(from + kAhead + chain * kBlock + line);
      }
      for (size_t at = line; at < line + kLine; at += sizeof(uint64_t)) {
        const uint64_t a = LoadOnce(from + at);
        const uint64_t b = LoadOnce(from + kBlock + at);
        const uint64_t c = LoadOnce(from + 2 * kBlock + at);
        first = _mm_crc32_u64(first, a);
        second = _mm_crc32_u64(second, b);
        third = _mm_crc32_u64(third, c);
        StoreWord<kTo>(a, *to, at);
        StoreWord<kTo>(b, *to, kBlock + at);
        StoreWord<kTo>(c, *to, 2 * kBlock + at);
      }
    }
    if constexpr (kTo != To::kNowhere) *to += 3 * kBlock;
    state = Shift(shift, static_cast<uint32_t>(first)) ^ second;
    state = Shift(shift, static_cast<uint32_t>(state)) ^ third;
    *data += 3 * kBlock;
    *left -= 3 * kBlock;
  }
  return state;
}

template <To kTo>
__attribute__((target("sse4.2"))) uint32_t UpdateHardware(uint32_t crc, const std::byte* data,
                                                          size_t left, std::byte* to) {
  static const ShiftTable long_shift = MakeShiftTable(kLongBlock);
  static const ShiftTable short_shift = MakeShiftTable(kShortBlock);
  // Bytes that share a line with what others write are left to the caches.
  constexpr To kRest = kTo == To::kNowhere ? To::kNowhere : To::kCache;
  uint64_t state = crc;
  state = UpdateTriples<kTo, kLongBlock>(state, long_shift, &data, &left, &to);
  if constexpr (kTo == To::kMemory) _mm_sfence();  // before anybody is told
  state = UpdateTriples<kRest, kShortBlock>(state, short_shift, &data, &left, &to);
  if constexpr (kTo != To::kNowhere) {
    std::memcpy(to, data, left);
    data = to;
  }
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
  return ~UpdateHardware<To::kNowhere>(~crc, bytes.data(), bytes.size(), nullptr);
#else
  BATON_CHECK(false) << "no CRC-32C instruction; crc " << crc << " over " << bytes.size();
  return 0;
#endif
}

uint32_t Crc32cCopy(std::span<const std::byte> bytes, std::byte* to, uint32_t crc, Stores stores) {
#if defined(__x86_64__)
  if (HasHardwareCrc32c()) {
    return stores == Stores::kStreaming
               ? ~UpdateHardware<To::kMemory>(~crc, bytes.data(), bytes.size(), to)
               : ~UpdateHardware<To::kCache>(~crc, bytes.data(), bytes.size(), to);
  }
#endif
  std::memcpy(to, bytes.data(), bytes.size());
  return Crc32cTable({to, bytes.size()}, crc);
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  return HasHardwareCrc32c() ? Crc32cHardware(bytes, crc) : Crc32cTable(bytes, crc);
}

}  // namespace baton::kernels
