#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

// All bytes of a file. NOT_FOUND when it cannot be opened, DATA_LOSS when it cannot be read (a
// directory, a broken disk), INVALID_ARGUMENT when there are more than `max_bytes`; all name it.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t max_bytes = std::numeric_limits<size_t>::max());

// The same of a file that must be a regular one, else INVALID_ARGUMENT: to open a pipe is to wait
// for who writes to it, for ever perhaps, and some devices have no end.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            size_t max_bytes = std::numeric_limits<size_t>::max());

}  // namespace baton
