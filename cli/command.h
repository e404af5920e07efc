#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace baton::cli {

// A subcommand of `baton`, bound to options of its own.
struct Command {
  const CLI::App* app = nullptr;      // says whether it was chosen
  std::function<absl::Status()> run;  // after the arguments have been parsed
};

// Each adds itself below `app`.
Command AddImportPrompts(CLI::App& app);

}  // namespace baton::cli
