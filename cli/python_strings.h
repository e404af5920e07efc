#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// The strings that a Python source assigns to names at the top level, read and never executed:
//   name = "text"     name: str = """text"""     NAME = ("one " 'and two')
// and, under "NAME[key]", those of a dictionary of strings:
//   NAME = {"key": "text", ...}     NAME: Dict[str, str] = {...}
// Adjacent literals are joined, escapes undone; of two assignments the last counts. Any other
// expression (f-strings, bytes, sums, calls, escapes by name or in octal) leaves its name out.
// INVALID_ARGUMENT, naming the line, for a literal without an end.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> TopLevelStrings(
    absl::string_view source);

}  // namespace baton::cli
