#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace baton::engine {

// What a model directory is called and whose token ids it speaks.
struct ModelIdentity {
  std::string name;             // of the directory
  uint64_t tokenizer_hash = 0;  // FNV-1a of tokenizer.json; 0: there is none
};

// DATA_LOSS, naming the file, when tokenizer.json exists but cannot be read; INVALID_ARGUMENT when
// it is no regular file.
absl::StatusOr<ModelIdentity> ReadModelIdentity(const std::string& model_dir);

}  // namespace baton::engine
