#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton::router {

// Limits of ParseJson. Copying and writing JSON recurse, and looking up keys in their order of
// appearance is linear: without limits a small hostile text costs a stack or minutes.
inline constexpr size_t kMaxJsonDepth = 128;
inline constexpr int kMaxJsonKeysPerObject = 1000;

// JSON with the order of keys kept; of duplicate keys the last value wins, at the first's place.
// InvalidArgument when malformed or beyond the limits.
absl::StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text);

// Whether the whole of `text` is JSON, however deep or large.
bool IsJson(std::string_view text);

// `value` as the model was trained to see JSON, which is how Python's json.dumps writes it: ", "
// and ": " between items, non-ASCII kept, floats in shortest form (1e-05, 2.0, 1e+16). Integers
// beyond 64 bits appear as floats. Precondition: at most kMaxJsonDepth levels.
std::string PythonJson(const nlohmann::ordered_json& value);

// A JSON string literal, quotes included.
std::string JsonQuoted(std::string_view text);

// The same without the quotes: literals may be built from consecutive stretches of text.
void AppendJsonEscaped(std::string_view text, std::string* out);

}  // namespace baton::router
