#pragma once

#include <cstdint>

namespace baton {

// Who holds the pages and state slots at one moment. Owners are counted each on its own, not
// derived from one another: what does not add up shows in baton_kv_pages_unaccounted.
struct CacheOccupancy {
  int64_t pages_total = 0;
  int64_t pages_free = 0;
  int64_t pages_sequences = 0;
  int64_t pages_prefix = 0;      // kept for reuse by the prefix index alone
  int64_t pages_transfer = 0;    // sequences are done with them, a hand-off is not
  int64_t pages_quarantine = 0;  // a peer may still touch them
  int64_t slots_total = 0;
  int64_t slots_free = 0;
};

// What a worker has to do as of now; what routers go by.
struct WorkerLoad {
  int64_t running = 0;         // requests
  int64_t waiting = 0;         // requests
  int64_t waiting_tokens = 0;  // of prompts, not yet computed
  CacheOccupancy cache;
};

}  // namespace baton
