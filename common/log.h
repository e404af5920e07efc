#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "spdlog/spdlog.h"

// Logging is spdlog: spdlog::info("hand-off {} done, {} bytes", id, bytes). This sets it up.

namespace baton {

// `level` is trace, debug, info, warning, error or off. Lines go to stderr:
// 2026-01-31T12:00:00.123Z info  [role] message
absl::Status InitLogging(std::string_view role, std::string_view level);

}  // namespace baton
