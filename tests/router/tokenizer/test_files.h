#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace baton::router::testing {

inline const std::string kNeedlePath =
    std::string(BATON_SOURCE_DIR) + "/models/needle-17m/tokenizer.json";

// A small tokenizer.json to vary: the 256 bytes as ids 0..255, then "ab" 256 and "abc" 257, merged
// in this order, and the special token <s> 258.
nlohmann::json SmallTokenizerFile();

// How tokenizer files spell a byte.
std::string SpellingOfByte(int byte);

}  // namespace baton::router::testing
