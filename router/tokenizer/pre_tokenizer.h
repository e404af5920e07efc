#pragma once

#include <string_view>

#include "absl/functional/function_ref.h"

namespace baton::router {

// The regular expressions of the DeepSeek pre-tokenizer, in the order in which they are applied;
// each splits the pieces that the one before left, matches and the gaps between them alike.
// PreTokenize implements exactly these, as a scanner: one pass, linear in the length of the text
// for any text, no matcher limits. The loader refuses a tokenizer file that declares others.
inline constexpr std::string_view kNumberPattern = R"(\p{N}{1,3})";
inline constexpr std::string_view kCjkPattern = "[一-龥\u3040-ゟ゠-ヿ]+";
inline constexpr std::string_view kWordPattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Calls `emit` with the pieces of `text` in order; put together they are `text`, and none is empty.
// Precondition: `text` is valid UTF-8. Any thread.
void PreTokenize(std::string_view text, absl::FunctionRef<void(std::string_view)> emit);

}  // namespace baton::router
