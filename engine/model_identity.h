#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "engine/engine.h"

namespace baton::engine {

// What a model directory is called and whose token ids it speaks.
struct ModelIdentity {
  std::string name;             // of the directory
  uint64_t tokenizer_hash = 0;  // FNV-1a of tokenizer.json; 0: there is none
};

// UNAVAILABLE, naming the file, when tokenizer.json exists but cannot be read.
absl::StatusOr<ModelIdentity> ReadModelIdentity(const std::string& model_dir);

// What two workers have to tell each other before they exchange caches.
struct CacheDescription {
  std::vector<std::pair<std::string, std::string>> semantics;  // must be equal: Engine's, tokenizer
  CacheLayout layout;
  uint32_t page_tokens = 0;
  uint32_t rollback_rows = 0;
};
CacheDescription DescribeCache(const Engine& engine, const ModelIdentity& identity);

}  // namespace baton::engine
