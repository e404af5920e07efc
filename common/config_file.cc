#include "common/config_file.h"

#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/read_file.h"

namespace baton {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  const bool opened_by_shell = path == "/dev/stdin" || absl::StartsWith(path, "/dev/fd/");
  std::error_code ignored;  // reading it will tell
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  const bool exists = std::filesystem::exists(status);
  if (exists && !std::filesystem::is_regular_file(status) && !opened_by_shell) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, std::filesystem::is_directory(status) ? " is a directory" : " is no regular file"));
  }
  return ReadFile(path, kMaxBytes);
}

absl::StatusOr<YAML::Node> ParseConfigText(const std::string& text, const std::string& path) try {
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  for (size_t i = 1; i < documents.size(); ++i) {
    if (documents[i].IsNull()) continue;  // what ends with "---" has no more to say
    return absl::InvalidArgumentError(
        absl::StrCat(PlaceInFile(path, documents[i].Mark()),
                     "a second document begins here; everything must stand in one"));
  }
  return documents.empty() ? YAML::Node() : documents[0];
} catch (const YAML::Exception& error) {
  return absl::InvalidArgumentError(absl::StrCat(PlaceInFile(path, error.mark), error.msg));
}

std::string PlaceInFile(const std::string& path, const YAML::Mark& mark) {
  return mark.is_null() ? absl::StrCat(path, ": ") : absl::StrCat(path, ":", mark.line + 1, ": ");
}

}  // namespace baton
