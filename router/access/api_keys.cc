#include "router/access/api_keys.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/read_file.h"
#include "common/status_macros.h"
#include "spdlog/spdlog.h"

namespace baton::router {
namespace {

constexpr size_t kMinKeyBytes = 16;
constexpr size_t kMaxKeyBytes = 256;
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr std::string_view kScheme = "Bearer ";

bool IsKey(absl::string_view text) {
  return text.size() >= kMinKeyBytes && text.size() <= kMaxKeyBytes &&
         std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
}

// Looks at every byte of `given`, whatever it finds.
bool SameKey(std::string_view key, std::string_view given) {
  size_t difference = key.size() ^ given.size();
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  }
  return difference == 0;
}

absl::StatusOr<std::vector<std::string>> ParseKeys(const std::string& path,
                                                   const std::string& text) {
  std::vector<std::string> keys;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    if (!IsKey(line)) {  // which is not shown: it may be a secret misspelt
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": a key is ", kMinKeyBytes,
                                                     " to ", kMaxKeyBytes,
                                                     " printable characters without spaces"));
    }
    keys.emplace_back(line);
  }
  if (keys.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " holds no key"));
  return keys;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Load(std::string path, const Clock& clock) {
  std::unique_ptr<ApiKeys> keys(new ApiKeys(std::move(path), clock));
  MutexLock lock(keys->mutex_);
  BATON_RETURN_IF_ERROR(keys->Read());
  return keys;
}

absl::Status ApiKeys::Read() const {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path_, kMaxFileBytes));
  BATON_ASSIGN_OR_RETURN(keys_, ParseKeys(path_, text));
  return absl::OkStatus();
}

void ApiKeys::ReadIfChanged() const {
  const std::optional<absl::Status> read = watch_.ReadIfChanged([this] { return Read(); });
  if (!read) return;
  if (read->ok()) {
    spdlog::info("{}: {} API keys", path_, keys_.size());
  } else {
    spdlog::error("API keys stay as they were: {}", read->ToString());
  }
}

bool ApiKeys::Accepts(std::string_view authorization) const {
  if (!absl::StartsWithIgnoreCase({authorization.data(), authorization.size()},
                                  {kScheme.data(), kScheme.size()})) {
    return false;
  }
  const std::string_view given = authorization.substr(kScheme.size());
  MutexLock lock(mutex_);
  ReadIfChanged();
  bool accepted = false;
  for (const std::string& key : keys_) accepted |= SameKey(key, given);
  return accepted;
}

}  // namespace baton::router
