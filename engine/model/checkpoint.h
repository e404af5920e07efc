#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "engine/model/dummy_weights.h"
#include "engine/model/safetensors.h"
#include "engine/model/schema.h"

namespace baton::engine {

// A model directory: config.json, and either model.safetensors.index.json with its shards or one
// model.safetensors. Nothing is read beyond headers until someone looks at a tensor's bytes.
class Checkpoint {
 public:
  // Fails, naming the file and everything found wrong, unless config and tensors are complete and
  // fit each other. Shards must lie in `directory` itself (symbolic links there are followed).
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // Of the directory only config.json, and weights of no meaning (dummy_weights.h). `layers`: the
  // first so many of the trunk, with the MTP block; 0: all. InvalidArgument if there are fewer.
  static absl::StatusOr<Checkpoint> OpenDummy(const std::string& directory, int layers);

  const ModelConfig& config() const { return config_; }
  const TensorMap& tensors() const { return tensors_; }     // views, valid as long as this object
  const TensorView& tensor(const std::string& name) const;  // must exist

  // 16 hex digits over config.json's values and every tensor's name, type, shape and first bytes,
  // which tell two trainings of one architecture apart. Does not depend on sharding, on the order
  // of keys or on the machine; two workers may exchange caches only if it is equal.
  std::string Hash() const;

 private:
  Checkpoint() = default;

  // `layers` as in OpenDummy.
  absl::Status ReadConfig(const std::string& directory, int layers);
  absl::Status AddShards(const std::string& directory);
  absl::Status AddShard(const std::string& path, const std::vector<std::string>& names);

  ModelConfig config_;
  std::string canonical_config_;  // config.json with sorted keys and no white space
  std::vector<SafetensorsFile> files_;
  std::unique_ptr<const DummyWeights> dummy_;  // instead of files
  TensorMap tensors_;
};

}  // namespace baton::engine
