#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/config.h"
#include "engine/model/safetensors.h"

// Which tensors a checkpoint has, under the official names, derived from its config.

namespace baton::engine {

struct TensorSpec {
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
};

using TensorMap = std::map<std::string, TensorView>;

// Whether routed experts are stored as packed FP4 (I8) or as FP8. The stored type decides, not
// config.json, which did not always say.
bool HasFp4Experts(const TensorMap& tensors);

// Name -> type and shape of every tensor of the model, trunk and MTP.
std::map<std::string, TensorSpec> ExpectedTensors(const ModelConfig& config, bool fp4_experts);

// InvalidArgument lists tensors that are missing, not part of the model, or of another type or
// shape.
absl::Status CheckTensors(const ModelConfig& config, const TensorMap& tensors);

}  // namespace baton::engine
