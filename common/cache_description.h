#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/cache_layout.h"

namespace baton {

// What two workers have to tell each other before they exchange caches.
struct CacheDescription {
  // Must be equal: model hash, tokenizer hash, numerics, index_topk, ... (name, value), any order.
  std::vector<std::pair<std::string, std::string>> semantics;
  CacheLayout layout;  // must be equal
  // May differ; records are addressed by logical position.
  uint32_t page_tokens = 0;
  uint32_t rollback_rows = 0;
};

}  // namespace baton
