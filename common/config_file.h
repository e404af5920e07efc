#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "yaml-cpp/yaml.h"

// YAML files that people write, a server's or a cluster's: what is taken for one, and how errors
// say where in it they are.

namespace baton {

// A file of that name: a regular one, or what a shell has opened (/dev/stdin, /dev/fd/N), which is
// waited for as long as whoever writes it takes. NOT_FOUND, DATA_LOSS: see ReadFile.
// INVALID_ARGUMENT: neither, a FIFO above all, which might be waited for in vain; or more than
// 1 MiB.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

// The document that the text of `path` is; null for one that says nothing. INVALID_ARGUMENT, with
// file and line: no YAML, or a second document, of which nobody would take notice.
absl::StatusOr<YAML::Node> ParseConfigText(const std::string& text, const std::string& path);

// "path:line: ", without the line for what has none.
std::string PlaceInFile(const std::string& path, const YAML::Mark& mark);

}  // namespace baton
