#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "engine/cache/page_list.h"
#include "engine/cache/storage.h"
#include "engine/model/checkpoint.h"
#include "engine/model/forward.h"

namespace baton::engine {

// What computes a model and holds its cache. Everything made by a backend belongs together, and the
// backend outlives it.
class Backend {
 public:
  virtual ~Backend() = default;

  // Copies the weights out of the checkpoint, which may be dropped afterwards. Errors name tensors
  // with values that cannot be, or the memory that is lacking.
  virtual absl::StatusOr<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint,
                                                           const ForwardOptions& options) = 0;
  // Bytes of cache that fit now if this backend may take `fraction` of the device's memory in all;
  // nothing if memory is taken when it is written, so that there is no such number.
  virtual std::optional<int64_t> CacheRoom(double fraction) const = 0;
  // All zero. RESOURCE_EXHAUSTED says how much memory there is.
  virtual absl::StatusOr<std::unique_ptr<CacheStorage>> NewCache(const CacheGeometry& geometry) = 0;
  // One sequence's records within a cache of this backend; storage and pages outlive them.
  virtual std::unique_ptr<SequenceRecords> NewRecords(const CacheStorage& storage,
                                                      const PageList& pages, int slot) = 0;
};

// Names that MakeBackend knows in this build, the default first.
std::vector<std::string> BackendNames();

// InvalidArgument names the backends there are; FailedPrecondition says what the machine lacks.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& name);

}  // namespace baton::engine
