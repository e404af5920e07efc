#include "router/dispatch/served_model.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
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
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
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

absl::Status ReadSamplingDefaults(const fs::path& path, ServedModel* model) {
  if (!Exists(path)) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const Json config, ReadObject(path));
  // As in requests: each that leaves a field out gets what stands here.
  BATON_RETURN_IF_ERROR(
      ReadNumber(config, "temperature", path, {0, kMaxTemperature}, &model->temperature));
  BATON_RETURN_IF_ERROR(ReadNumber(config, "top_p", path, {kMinTopP, 1}, &model->top_p));
  BATON_RETURN_IF_ERROR(ReadNumber(config, "top_k", path, {kMinTopK, kMaxInt}, &model->top_k));
  if (config.value("do_sample", Json(true)) == Json(false)) model->temperature = 0;
  return absl::OkStatus();
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
  BATON_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load((root / "tokenizer.json").string()));
  BATON_ASSIGN_OR_RETURN(const MarkupIds markup, FindMarkup(tokenizer));
  ServedModel model{.name = name.empty() ? NameOf(root) : std::move(name),
                    .tokenizer = std::move(tokenizer),
                    .markup = markup};

  const fs::path config_path = root / "config.json";
  BATON_ASSIGN_OR_RETURN(const Json config, ReadObject(config_path));
  BATON_RETURN_IF_ERROR(
      ReadNumber(config, "vocab_size", config_path, {1, kMaxInt}, &model.vocab_size));
  if (model.vocab_size <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(config_path.string(), ": vocab_size is ", model.vocab_size));
  }
  BATON_RETURN_IF_ERROR(model.tokenizer.CheckModelVocabulary(model.vocab_size));
  BATON_RETURN_IF_ERROR(ReadSamplingDefaults(root / "generation_config.json", &model));

  const fs::path prompts_path = root / "chat_prompts.json";
  if (Exists(prompts_path)) {
    BATON_ASSIGN_OR_RETURN(model.chat_prompts, LoadChatPrompts(prompts_path.string()));
  } else {
    spdlog::warn(
        "there is no {}: tools and reasoning effort max are refused; `baton import-prompts {}` "
        "writes it, for the next start",
        prompts_path.string(), (root / "encoding/encoding_dsv4.py").string());
  }
  return model;
}

}  // namespace baton::router
