#include "engine/model_identity.h"

#include <filesystem>

#include "common/fnv1a.h"
#include "common/read_file.h"
#include "common/status_macros.h"

namespace baton::engine {

absl::StatusOr<ModelIdentity> ReadModelIdentity(const std::string& model_dir) {
  ModelIdentity identity;
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::canonical(model_dir, error);
  identity.name = error ? model_dir : directory.filename().string();

  const std::filesystem::path path = std::filesystem::path(model_dir) / "tokenizer.json";
  if (!std::filesystem::exists(path, error)) return identity;
  BATON_ASSIGN_OR_RETURN(const std::string bytes, ReadRegularFile(path.string()));
  identity.tokenizer_hash = Fnv1a64(bytes);
  return identity;
}

}  // namespace baton::engine
