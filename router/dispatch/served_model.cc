#include "router/dispatch/served_model.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error_list.h"
#include "common/log.h"
#include "common/read_file.h"
#include "common/status_macros.h"
#include "router/chat/json_text.h"
#include "router/dispatch/generation_request.h"

namespace baton::router {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kMaxInt = std::numeric_limits<int32_t>::max();

absl::StatusOr<Json> ReadObject(const fs::path& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path.string()));
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", json.status().message()));
  }
  if (!json->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), " is not a JSON object"));
  }
  return json;
}

struct Limits {
  double low;
  double high;
};

// Leaves `value` as it is when the key is absent.
template <typename T>
absl::Status ReadNumber(const Json& object, const char* key, const fs::path& path, Limits limits,
                        T* value) {
  const auto found = object.find(key);
  if (found == object.end()) return absl::OkStatus();
  if (!found->is_number()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", key, " is not a number"));
  }
  const double number = found->get<double>();
  if (!(number >= limits.low && number <= limits.high)) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", key, " is ", number,
                                                   ", expected ", limits.low, " to ", limits.high));
  }
  *value = static_cast<T>(number);
  return absl::OkStatus();
}

bool Exists(const fs::path& path) {
  std::error_code ignored;  // reading it will tell
  return fs::exists(path, ignored) || ignored;
}

absl::StatusOr<int32_t> ReadVocabularySize(const fs::path& path) {
  BATON_ASSIGN_OR_RETURN(const Json config, ReadObject(path));
  int32_t size = 0;
  BATON_RETURN_IF_ERROR(ReadNumber(config, "vocab_size", path, {1, kMaxInt}, &size));
  if (size > 0) return size;
  return absl::InvalidArgumentError(absl::StrCat(path.string(), ": vocab_size is ", size));
}

struct SamplingDefaults {
  float temperature = 1;
  float top_p = 1;
  int32_t top_k = 0;
};

absl::StatusOr<SamplingDefaults> ReadSamplingDefaults(const fs::path& path) {
  SamplingDefaults defaults;
  if (!Exists(path)) return defaults;
  BATON_ASSIGN_OR_RETURN(const Json config, ReadObject(path));
  // As in requests: each that leaves a field out gets what stands here.
  BATON_RETURN_IF_ERROR(
      ReadNumber(config, "temperature", path, {0, kMaxTemperature}, &defaults.temperature));
  BATON_RETURN_IF_ERROR(ReadNumber(config, "top_p", path, {kMinTopP, 1}, &defaults.top_p));
  BATON_RETURN_IF_ERROR(ReadNumber(config, "top_k", path, {kMinTopK, kMaxInt}, &defaults.top_k));
  if (config.value("do_sample", Json(true)) == Json(false)) defaults.temperature = 0;
  return defaults;
}

absl::StatusOr<std::optional<ChatPrompts>> ReadChatPrompts(const fs::path& path) {
  if (!Exists(path)) return std::nullopt;
  return LoadChatPrompts(path.string());
}

std::string NameOf(const fs::path& directory) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(directory, error);
  const fs::path normal = error ? directory : canonical;
  return normal.has_filename() ? normal.filename().string()
                               : normal.parent_path().filename().string();
}

}  // namespace

absl::StatusOr<ServedModel> ServedModel::Load(const std::string& directory, std::string name) {
  const fs::path root(directory);
  ErrorList errors;  // of all files
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load((root / "tokenizer.json").string());
  errors.Add(tokenizer.status());
  const absl::StatusOr<int32_t> vocab_size = ReadVocabularySize(root / "config.json");
  errors.Add(vocab_size.status());
  const auto sampling = ReadSamplingDefaults(root / "generation_config.json");
  errors.Add(sampling.status());
  absl::StatusOr<std::optional<ChatPrompts>> prompts = ReadChatPrompts(root / "chat_prompts.json");
  errors.Add(prompts.status());
  BATON_RETURN_IF_ERROR(errors.ToStatus());
  BATON_RETURN_IF_ERROR(tokenizer->CheckModelVocabulary(*vocab_size));
  BATON_ASSIGN_OR_RETURN(const MarkupIds markup, FindMarkup(*tokenizer));
  if (!prompts->has_value()) {
    spdlog::warn(
        "there is no {}: tools and reasoning effort max are refused; `baton import-prompts {}` "
        "writes it, for the next start",
        (root / "chat_prompts.json").string(), (root / "encoding/encoding_dsv4.py").string());
  }
  return ServedModel{.name = name.empty() ? NameOf(root) : std::move(name),
                     .tokenizer = *std::move(tokenizer),
                     .markup = markup,
                     .vocab_size = *vocab_size,
                     .chat_prompts = *std::move(prompts),
                     .temperature = sampling->temperature,
                     .top_p = sampling->top_p,
                     .top_k = sampling->top_k};
}

}  // namespace baton::router
