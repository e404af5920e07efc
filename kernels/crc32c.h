#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton::kernels {

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, initial value and final xor all ones: the
// one of iSCSI, RFC 3720) of `bytes` appended to data whose CRC is `crc`. Crc32c({}) == 0.
// Uses the CPU's instruction where there is one.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

// Where copied bytes go: kStreaming leads long copies past the caches, to memory that nobody reads
// soon. Its stores are fenced before the call returns: what is stored afterwards, such as a flag
// that they are there, shows after them.
enum class Stores : uint8_t { kCached, kStreaming };

// The same while the bytes are copied to `to`, which holds as many and does not overlap. It is the
// CRC of what has been written to `to`, also where somebody changes `bytes` meanwhile: each of them
// is read once.
uint32_t Crc32cCopy(std::span<const std::byte> bytes, std::byte* to, uint32_t crc, Stores stores);

// The implementations behind it, for tests and benches.
uint32_t Crc32cTable(std::span<const std::byte> bytes, uint32_t crc = 0);
bool HasHardwareCrc32c();
uint32_t Crc32cHardware(std::span<const std::byte> bytes, uint32_t crc = 0);  // needs the above

}  // namespace baton::kernels
