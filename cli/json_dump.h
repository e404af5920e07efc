#pragma once

#include <string>

namespace baton::cli {

// JSON as text, on one line unless an indent is given. What is not UTF-8 in it (a log, a server's
// words, half a character that a model said) becomes U+FFFD, where dump() by itself throws.
template <typename Json>
std::string Dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace baton::cli
