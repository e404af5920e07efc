#include "cli/api_key.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/read_file.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

constexpr const char* kVariable = "BATON_API_KEY";

// What could be more than a value of one header is no key.
absl::StatusOr<std::string> Bearer(absl::string_view text, absl::string_view source) {
  const absl::string_view key = absl::StripAsciiWhitespace(text);
  if (key.empty() || !std::all_of(key.begin(), key.end(), absl::ascii_isgraph)) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, " holds no key: one line of printable characters without spaces"));
  }
  return absl::StrCat("Bearer ", key);
}

}  // namespace

void AddApiKeyFile(CLI::App* command, std::string& file) {
  command
      ->add_option("--api-key-file", file,
                   absl::StrCat("file with the API key to show [default: the environment variable ",
                                kVariable, "]"))
      ->type_name("FILE");
}

absl::StatusOr<std::string> Authorization(const std::string& file) {
  if (!file.empty()) {
    BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    return Bearer(text, file);
  }
  const char* variable = std::getenv(kVariable);
  if (variable == nullptr || *variable == '\0') return "";
  return Bearer(variable, kVariable);
}

}  // namespace baton::cli
