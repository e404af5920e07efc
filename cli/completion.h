#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::cli {

struct CompletionFlag {
  std::string name;  // "--url"
  std::string help;
  bool takes_value = true;
};

struct CompletionCommand {
  std::string name;
  std::string help;
  std::vector<CompletionFlag> flags;
};

// For bash, zsh or fish. Behind a flag that takes a value, files are completed.
std::string CompletionScript(absl::string_view shell,
                             const std::vector<CompletionCommand>& commands);

}  // namespace baton::cli
