#include "engine/cache_description.h"

#include "absl/strings/str_cat.h"

namespace baton::engine {

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
