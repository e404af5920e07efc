#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

// The key that a router started with --api-keys-file wants to see. There is no flag that takes the
// key itself: everybody on the machine can read a program's arguments.

namespace baton::cli {

// --api-key-file.
void AddApiKeyFile(CLI::App* command, std::string& file);

// "Bearer KEY", of the one line of `file`, or, without a file, of the environment variable
// BATON_API_KEY; empty when there is neither. Not OPENAI_API_KEY: what is meant for another server
// is not sent to this one. INVALID_ARGUMENT names where the key comes from, never the key; errors
// of ReadFile.
absl::StatusOr<std::string> Authorization(const std::string& file);

}  // namespace baton::cli
