#include "engine/model_identity.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/fnv1a.h"

namespace baton::engine {

absl::StatusOr<ModelIdentity> ReadModelIdentity(const std::string& model_dir) {
  ModelIdentity identity;
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::canonical(model_dir, error);
  identity.name = error ? model_dir : directory.filename().string();

  const std::filesystem::path path = std::filesystem::path(model_dir) / "tokenizer.json";
  if (!std::filesystem::exists(path, error)) return identity;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file.good() && !file.eof()) {
    return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be read"));
  }
  identity.tokenizer_hash = Fnv1a64(bytes);
  return identity;
}

CacheDescription DescribeCache(const Engine& engine, const ModelIdentity& identity) {
  CacheDescription description;
  description.semantics = engine.semantics();
  description.semantics.emplace_back("tokenizer", absl::StrCat(absl::Hex(identity.tokenizer_hash)));
  description.layout = engine.geometry().layout();
  description.page_tokens = static_cast<uint32_t>(engine.geometry().options.page_tokens);
  description.rollback_rows = static_cast<uint32_t>(engine.geometry().options.rollback_rows);
  return description;
}

}  // namespace baton::engine
