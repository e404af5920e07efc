#include "cli/files.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace baton::cli {

namespace fs = std::filesystem;

fs::path OwnFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

fs::path ProgramIn(const fs::path& folder, absl::string_view name) {
  const fs::path beside = folder / absl::StrCat("baton-", name);
  const fs::path packaged = folder / "../bin" / absl::StrCat("baton-", name);
  std::error_code unknown;  // starting it says what is wrong
  return !fs::exists(beside, unknown) && fs::exists(packaged, unknown) ? packaged : beside;
}

absl::StatusOr<fs::path> MakeTemporaryFolder(absl::string_view name) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("no folder for temporary files: ", error.message()));
  }
  std::string folder = (parent / absl::StrCat(name, "-XXXXXX")).string();
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the folder ", folder, ": ", std::strerror(errno)));
  }
  return fs::path(folder);
}

absl::Status WriteFile(const fs::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path.string()));
  return absl::OkStatus();
}

}  // namespace baton::cli
