#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// UTF-8 decoding with one rule for malformed input: every maximal subpart of an ill-formed sequence
// becomes one U+FFFD (the Unicode standard's recommended practice, as Python's errors="replace").
// Pure functions, any thread.

namespace baton::router {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Unit {
  enum class Kind {
    kValid,       // a complete, well-formed code point
    kInvalid,     // a maximal subpart that no continuation could repair
    kIncomplete,  // the text ends inside a sequence that is well-formed so far
  };
  Kind kind = Kind::kValid;
  char32_t code_point = 0;  // kValid only
  size_t bytes = 0;         // length of the unit, at least 1
};

// The unit that starts at text[pos]. Precondition: pos < text.size().
Utf8Unit NextUtf8(std::string_view text, size_t pos);

bool IsValidUtf8(std::string_view text);

// `text` with every malformed unit replaced by U+FFFD; an incomplete tail is one unit.
std::string SanitizeUtf8(std::string_view text);

// Appends the UTF-8 form of a code point below 0x110000 that is no surrogate.
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace baton::router
