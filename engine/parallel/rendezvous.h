#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/parallel/frame.h"
#include "engine/parallel/socket.h"

namespace baton::engine {

// One end of the connection to another rank.
struct Link {
  int rank = 0;  // of the other
  Socket socket;
  FrameReader reader = {};  // may hold what came behind the greeting
};

struct RendezvousOptions {
  int size = 0;
  int rank = 0;
  std::string address;  // host:port: where rank 0 listens
  Facts facts;          // must be equal on all ranks
  std::chrono::nanoseconds timeout{};
};

// Returns when all ranks are there: rank 0 with a link to each other rank in ascending order, the
// others with one to rank 0. DEADLINE_EXCEEDED says who did not come, FAILED_PRECONDITION what
// differs from rank 0.
absl::StatusOr<std::vector<Link>> Meet(const RendezvousOptions& options);

}  // namespace baton::engine
