#include "common/read_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  // By read() alone: iterators over the buffer let its exception out when the system's read fails.
  std::string bytes;
  std::string block(size_t{64} << 10, '\0');
  while (stream.read(block.data(), static_cast<std::streamsize>(block.size())) ||
         stream.gcount() > 0) {
    bytes.append(block, 0, static_cast<size_t>(stream.gcount()));
    if (bytes.size() > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " holds more than ", max_bytes, " bytes"));
    }
  }
  if (stream.bad()) return absl::DataLossError(absl::StrCat("cannot read ", path));
  return bytes;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t max_bytes) {
  std::error_code ignored;  // ReadFile says what it is
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return ReadFile(path, max_bytes);
}

}  // namespace baton
