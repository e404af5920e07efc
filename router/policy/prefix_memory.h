#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "router/registry/snapshot.h"

namespace baton::router {

// Which workers were sent prompts that begin like this one: a guess at what their prefix caches
// hold, made of the router's own decisions. A prompt is remembered in blocks, each standing for all
// before it, so the next turn of a conversation is recognised by its first part. Wrong guesses cost
// time only. Thread-safe; what was used longest ago is forgotten.
class PrefixMemory {
 public:
  static constexpr size_t kBlockTokens = 128;

  explicit PrefixMemory(size_t blocks) : max_blocks_(blocks) {}

  struct Known {
    WorkerId worker;
    int64_t tokens = 0;  // of the prompt's beginning
  };
  // Each worker that is known to have seen a beginning, with the longest.
  std::vector<Known> Find(std::span<const int32_t> prompt) const;
  void Remember(std::span<const int32_t> prompt, std::span<const WorkerId> workers);

 private:
  struct Block {
    std::vector<WorkerId> workers;  // the newest last
    std::list<uint64_t>::iterator use;
  };

  const size_t max_blocks_;
  mutable Mutex mutex_;
  absl::flat_hash_map<uint64_t, Block> blocks_ ABSL_GUARDED_BY(mutex_);  // by hash of all before
  std::list<uint64_t> by_use_ ABSL_GUARDED_BY(mutex_);                   // longest ago first
};

}  // namespace baton::router
