#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton {

// All bytes of a file. NOT_FOUND when it cannot be opened, DATA_LOSS when it cannot be read (a
// directory, a broken disk); both name it.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace baton
