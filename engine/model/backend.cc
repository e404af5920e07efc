#include "engine/model/backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "engine/cache/sequence_records.h"
#include "engine/model/cpu_model.h"
#include "engine/model/device_backend.h"
#include "engine/model/weights.h"
#include "engine/parallel/expert_group.h"

namespace baton::engine {
namespace {

class CpuBackend final : public Backend {
 public:
  absl::StatusOr<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint,
                                                   const ForwardOptions& options) override {
    const ExpertShare share = options.group != nullptr ? options.group->share() : ExpertShare();
    BATON_ASSIGN_OR_RETURN(Weights weights, LoadWeights(checkpoint, share));
    return std::make_unique<CpuModel>(checkpoint.config(), std::move(weights), options);
  }
  std::optional<int64_t> CacheRoom(double /*fraction*/) const override { return std::nullopt; }
  absl::StatusOr<std::unique_ptr<CacheStorage>> NewCache(const CacheGeometry& geometry) override {
    return CacheStorage::InMainMemory(geometry);
  }
  std::unique_ptr<SequenceRecords> NewRecords(const CacheStorage& storage, const PageList& pages,
                                              int slot) override {
    return std::make_unique<StoredRecords>(storage, pages, slot);
  }
};

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names = {"cpu"};
  if (HasDeviceBackend()) names.emplace_back("cuda");
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& name) {
  if (name == "cpu") return std::make_unique<CpuBackend>();
  if (name == "cuda" && HasDeviceBackend()) return MakeDeviceBackend();
  return absl::InvalidArgumentError(absl::StrCat("device is \"", name, "\"; this build has ",
                                                 absl::StrJoin(BackendNames(), ", ")));
}

}  // namespace baton::engine
