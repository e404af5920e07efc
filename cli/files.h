#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// The folder of this program's executable.
std::filesystem::path OwnFolder();

// "baton-NAME" in `folder`, or, as in an unpacked archive, in bin/ beside it: there programs are in
// lib/ and what starts them in bin/.
std::filesystem::path ProgramIn(const std::filesystem::path& folder, absl::string_view name);

// A new folder "NAME-XXXXXX" among the temporary files; UNAVAILABLE names it. The caller removes
// it.
absl::StatusOr<std::filesystem::path> MakeTemporaryFolder(absl::string_view name);

// In place of what is there; UNAVAILABLE names the file.
absl::Status WriteFile(const std::filesystem::path& path, const std::string& content);

}  // namespace baton::cli
