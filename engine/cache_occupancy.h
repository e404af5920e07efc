#pragma once

#include "common/worker_load.h"
#include "engine/cache/ledger.h"

namespace baton::engine {

// What the ledger knows of a worker's occupancy. Which phase the pages of sequences are in is the
// role's business, and added by it.
inline CacheOccupancy OccupancyOf(const CacheUsage& usage) {
  return {.pages_total = usage.pages_total,
          .pages_free = usage.pages_free,
          .pages_prefix = usage.pages_prefix,
          .slots_total = usage.slots_total,
          .slots_free = usage.slots_free};
}

}  // namespace baton::engine
