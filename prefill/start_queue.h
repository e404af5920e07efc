#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

// Which waiting attempt a prefill worker starts next. Pure; its owner locks it.
//
// Work that no decode worker has granted yet is bounded per decode worker, in pages and slots: one
// whose cache is full holds up its own requests, not those of others.

namespace baton::prefill {

struct StartLimits {
  size_t queue = 256;           // attempts that wait
  int64_t ungranted_pages = 0;  // held by started, ungranted attempts of one decode worker
  int ungranted_sequences = 0;  // of one decode worker
};

class StartQueue {
 public:
  struct Entry {
    uint64_t id = 0;
    std::string decode_worker;
    int64_t tokens = 0;  // of the prompt
    int64_t pages = 0;   // they take
  };

  explicit StartQueue(const StartLimits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED when full.
  absl::Status Push(Entry entry);
  // Takes a waiting entry out; no effect if it is not waiting.
  void Remove(uint64_t id);

  // The oldest entry that its decode worker's quota lets start: within it, or the only one of that
  // worker, so that a prompt larger than the quota is served too. Null: none.
  const Entry* Next() const;
  // Takes the entry out and counts it as ungranted until Settle.
  void Start(uint64_t id);
  // A started entry was granted or has ended.
  void Settle(const Entry& entry);

  size_t size() const { return waiting_.size(); }
  int64_t waiting_tokens() const { return waiting_tokens_; }

 private:
  struct Ungranted {
    int64_t pages = 0;
    int sequences = 0;
  };
  std::list<Entry>::const_iterator Find(uint64_t id) const;

  StartLimits limits_;
  std::list<Entry> waiting_;  // oldest first
  int64_t waiting_tokens_ = 0;
  absl::flat_hash_map<std::string, Ungranted> ungranted_;
};

}  // namespace baton::prefill
