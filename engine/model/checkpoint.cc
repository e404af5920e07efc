#include "engine/model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/error_list.h"
#include "common/fnv1a.h"
#include "common/status_macros.h"
#include "engine/model/json.h"
#include "engine/model/mmap_file.h"
#include "engine/model/problems.h"

namespace baton::engine {
namespace {

using Json = nlohmann::json;

constexpr int kMaxJsonDepth = 16;
constexpr size_t kHashedBytes = 64;  // of every tensor

// Shard file -> the tensors that the index says it holds.
using ShardMap = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

// A name that cannot lead out of the model's directory.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

absl::StatusOr<ShardMap> ParseIndex(absl::string_view text) {
  BATON_ASSIGN_OR_RETURN(const Json index, ParseUntrustedJson(text, kMaxJsonDepth));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError("needs weight_map, an object of tensor -> file");
  }
  Problems problems;
  ShardMap shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get_ref<const std::string&>())) {
      problems.Add(absl::StrCat("weight_map[", tensor, "] must name a file of the directory, is ",
                                file.dump()));
      continue;
    }
    shards[file.get<std::string>()].push_back(tensor);
  }
  BATON_RETURN_IF_ERROR(problems.ToStatus("invalid index"));
  return shards;
}

// Leaves the first `layers` layers of the trunk in a config that has been found valid.
void KeepLayers(Json& config, int layers) {
  Json& ratios = config["compress_ratios"];
  const auto trunk = config["num_hidden_layers"].get<std::ptrdiff_t>();
  ratios.erase(ratios.begin() + layers, ratios.begin() + trunk);
  config["num_hidden_layers"] = layers;
  config["num_hash_layers"] = std::min(layers, config["num_hash_layers"].get<int>());
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  BATON_RETURN_IF_ERROR(checkpoint.ReadConfig(directory, /*layers=*/0));
  BATON_RETURN_IF_ERROR(checkpoint.AddShards(directory)) << directory;
  BATON_RETURN_IF_ERROR(CheckTensors(checkpoint.config_, checkpoint.tensors_)) << directory;
  return checkpoint;
}

absl::StatusOr<Checkpoint> Checkpoint::OpenDummy(const std::string& directory, int layers) {
  Checkpoint checkpoint;
  BATON_RETURN_IF_ERROR(checkpoint.ReadConfig(directory, layers));
  checkpoint.dummy_ = std::make_unique<DummyWeights>(checkpoint.config_);
  checkpoint.tensors_ = checkpoint.dummy_->tensors();
  return checkpoint;
}

absl::Status Checkpoint::ReadConfig(const std::string& directory, int layers) {
  const std::string path = absl::StrCat(directory, "/config.json");
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  BATON_RETURN_IF_ERROR(config.status()) << path;
  BATON_ASSIGN_OR_RETURN(Json document, ParseUntrustedJson(text, kMaxJsonDepth));
  if (layers > config->num_hidden_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", layers, " layers are asked for, it has ", config->num_hidden_layers));
  }
  if (layers > 0) {
    KeepLayers(document, layers);
    config = ParseModelConfig(document.dump());
    BATON_RETURN_IF_ERROR(config.status()) << path;
  }
  config_ = *std::move(config);
  canonical_config_ = document.dump();
  return absl::OkStatus();
}

absl::Status Checkpoint::AddShards(const std::string& directory) {
  const std::string index_path = absl::StrCat(directory, "/model.safetensors.index.json");
  std::error_code ignored;
  if (!std::filesystem::exists(index_path, ignored)) {
    BATON_ASSIGN_OR_RETURN(SafetensorsFile file,
                           SafetensorsFile::Open(absl::StrCat(directory, "/model.safetensors")));
    tensors_ = file.tensors();
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadText(index_path));
  absl::StatusOr<ShardMap> shards = ParseIndex(text);
  BATON_RETURN_IF_ERROR(shards.status()) << "model.safetensors.index.json";
  ErrorList errors;  // of a copy that is not complete all that lacks
  for (const auto& [file, names] : *shards) {
    errors.Add(AddShard(absl::StrCat(directory, "/", file), names));
  }
  return errors.ToStatus();
}

absl::Status Checkpoint::AddShard(const std::string& path, const std::vector<std::string>& names) {
  BATON_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  Problems problems;
  for (const std::string& name : names) {
    const TensorView* tensor = file.Find(name);
    if (tensor == nullptr) {
      problems.Add(absl::StrCat(name, " is missing"));
    } else {
      tensors_.emplace(name, *tensor);
    }
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (!std::binary_search(names.begin(), names.end(), name)) {
      problems.Add(absl::StrCat(name, " is not listed for this file"));
    }
  }
  BATON_RETURN_IF_ERROR(problems.ToStatus("disagrees with model.safetensors.index.json")) << path;
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

const TensorView& Checkpoint::tensor(const std::string& name) const {
  const auto it = tensors_.find(name);
  BATON_CHECK(it != tensors_.end()) << name;
  return it->second;
}

std::string Checkpoint::Hash() const {
  uint64_t hash = kFnv1aSeed;
  // Each part with its length, so that no two lists of parts read alike.
  const auto add = [&hash](std::string_view part) {
    const uint64_t length = part.size();
    hash = Fnv1a64({reinterpret_cast<const char*>(&length), sizeof(length)}, Fnv1a64(part, hash));
  };
  add(canonical_config_);
  for (const auto& [name, tensor] : tensors_) {
    add(name);
    add(DescribeTensor(tensor.type, tensor.shape));
    add({reinterpret_cast<const char*>(tensor.bytes.data()),
         std::min(tensor.bytes.size(), kHashedBytes)});
  }
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace baton::engine
