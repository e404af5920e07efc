#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton::engine {

// Parses JSON that came from a file we did not write. Beyond syntax and UTF-8 it refuses what the
// library would accept in silence: a name that occurs twice in one object (the last would win) and
// nesting deeper than `max_depth`. Errors are InvalidArgument.
absl::StatusOr<nlohmann::json> ParseUntrustedJson(absl::string_view text, int max_depth);

}  // namespace baton::engine
