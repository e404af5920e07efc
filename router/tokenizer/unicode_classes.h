#pragma once

#include <cstdint>

// Character classes of the pre-tokenizer's regular expressions, from a generated table rather than
// from a library: the ids of a prompt must not depend on which Unicode version a machine's packages
// know, or two routers would tokenize one text differently. Any thread.

namespace baton::router {

// Bits; a code point has at most one of the first four.
enum UnicodeClass : uint8_t {
  kLetter = 1,               // \p{L}
  kMark = 2,                 // \p{M}
  kNumber = 4,               // \p{N}
  kPunctuationOrSymbol = 8,  // [\p{P}\p{S}]
  kSpace = 16,               // \s
  kLineBreak = 32,           // [\r\n]; these are kSpace too
  kCjkOrKana = 64,           // U+4E00-9FA5, U+3040-30FF: the blocks the pre-tokenizer isolates
};

// One byte of UnicodeClass bits for each code point, 0x110000 entries.
const uint8_t* UnicodeClassTable();

}  // namespace baton::router
