#include "tests/golden/golden_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/model/json.h"

namespace baton::golden {
namespace {

using engine::SafetensorsFile;
using engine::TensorType;
using engine::TensorView;

constexpr int kMaxJsonDepth = 4;
constexpr char kTrace[] = "full300";   // tensors of the traced prompt,
constexpr char kTraceCase[] = "n300";  // whose ids are those of this case

template <typename T>
absl::StatusOr<std::vector<T>> Read(const SafetensorsFile& file, const std::string& name,
                                    TensorType type) {
  const TensorView* tensor = file.Find(name);
  if (tensor == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, " is missing"));
  if (tensor->type != type) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", engine::DescribeTensor(tensor->type, tensor->shape)));
  }
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

absl::Status CheckSize(const std::string& name, size_t size, size_t expected) {
  if (size == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " has ", size, " values, not ", expected));
}

// The integer after `prefix` in the name of a tensor, if that is how the name is built.
std::optional<int> LayerOf(const std::string& tensor, const std::string& prefix) {
  int layer = 0;
  if (!absl::StartsWith(tensor, prefix)) return std::nullopt;
  if (!absl::SimpleAtoi(tensor.substr(prefix.size()), &layer)) return std::nullopt;
  return layer;
}

absl::StatusOr<GoldenCase> LoadCase(const SafetensorsFile& file, const std::string& name,
                                    int vocab_size) {
  GoldenCase result;
  result.name = name;
  BATON_ASSIGN_OR_RETURN(result.ids, Read<int32_t>(file, name + ".ids", TensorType::kI32));
  BATON_ASSIGN_OR_RETURN(result.out, Read<int32_t>(file, name + ".out", TensorType::kI32));
  BATON_ASSIGN_OR_RETURN(result.logits, Read<float>(file, name + ".logits", TensorType::kF32));
  BATON_RETURN_IF_ERROR(
      CheckSize(name + ".logits", result.logits.size(), result.out.size() * vocab_size));
  for (const auto& [tensor, view] : file.tensors()) {
    const std::optional<int> layer = LayerOf(tensor, name + ".topk.");
    if (!layer) continue;
    BATON_ASSIGN_OR_RETURN(std::vector<int32_t> entries,
                           Read<int32_t>(file, tensor, TensorType::kI32));
    std::erase(entries, -1);
    result.selected[*layer] = std::move(entries);
  }
  return result;
}

absl::StatusOr<GoldenTrace> LoadTrace(const SafetensorsFile& file, int vocab_size) {
  const std::string prefix = absl::StrCat(kTrace, ".");
  GoldenTrace trace;
  BATON_ASSIGN_OR_RETURN(trace.ids,
                         Read<int32_t>(file, absl::StrCat(kTraceCase, ".ids"), TensorType::kI32));
  BATON_ASSIGN_OR_RETURN(trace.logits, Read<float>(file, prefix + "logits", TensorType::kF32));
  BATON_ASSIGN_OR_RETURN(trace.mtp_logits,
                         Read<float>(file, prefix + "mtp_logits", TensorType::kF32));
  BATON_RETURN_IF_ERROR(
      CheckSize(prefix + "logits", trace.logits.size(), trace.ids.size() * vocab_size));
  BATON_RETURN_IF_ERROR(
      CheckSize(prefix + "mtp_logits", trace.mtp_logits.size(), trace.ids.size() * vocab_size));
  for (const auto& [tensor, view] : file.tensors()) {
    const std::optional<int> layer = LayerOf(tensor, prefix + "streams.");
    if (!layer) continue;
    BATON_ASSIGN_OR_RETURN(trace.streams[*layer], Read<BFloat16>(file, tensor, TensorType::kBf16));
  }
  return trace;
}

}  // namespace

absl::StatusOr<GoldenFile> LoadGoldenFile(const std::string& path, int vocab_size) {
  BATON_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  const auto metadata = file.metadata().find("cases");
  if (metadata == file.metadata().end()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": metadata has no key \"cases\""));
  }
  BATON_ASSIGN_OR_RETURN(const nlohmann::json cases,
                         engine::ParseUntrustedJson(metadata->second, kMaxJsonDepth));
  GoldenFile golden;
  for (const auto& [name, info] : cases.items()) {
    absl::StatusOr<GoldenCase> loaded = LoadCase(file, name, vocab_size);
    BATON_RETURN_IF_ERROR(loaded.status()) << path;
    const auto found = info.find("found");
    loaded->must_match = found != info.end() && found->is_boolean() && found->get<bool>();
    golden.cases.push_back(*std::move(loaded));
  }
  std::sort(golden.cases.begin(), golden.cases.end(),
            [](const auto& a, const auto& b) { return a.ids.size() < b.ids.size(); });
  if (file.Find(absl::StrCat(kTrace, ".logits")) != nullptr) {
    BATON_ASSIGN_OR_RETURN(golden.trace, LoadTrace(file, vocab_size));
  }
  return golden;
}

}  // namespace baton::golden
