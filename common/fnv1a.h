#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

inline constexpr uint64_t kFnv1aSeed = 0xcbf29ce484222325;

// FNV-1a, 64 bits, of `bytes` after what `state` has seen. Equal on every machine and build, which
// std::hash is not; no protection against intent.
constexpr uint64_t Fnv1a64(std::string_view bytes, uint64_t state = kFnv1aSeed) {
  for (const char byte : bytes) state = (state ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return state;
}

}  // namespace baton
