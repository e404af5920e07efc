#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"

// What the router knows of the fleet at one moment. A snapshot never changes after it was made, so
// any thread may route by it without a lock; only the counters of the router's own open work move.

namespace baton::router {

enum class WorkerRole { kPrefill, kDecode };
const char* WorkerRoleName(WorkerRole role);

// One process. Workers that were never reached have incarnation 0.
struct WorkerId {
  std::string address = {};  // as the worker advertises it
  Incarnation incarnation = 0;

  // Whether this, from a failure report that may not know the incarnation (0), speaks of `worker`.
  bool Means(const WorkerId& worker) const {
    return address == worker.address && (incarnation == worker.incarnation || incarnation == 0);
  }
  friend bool operator==(const WorkerId&, const WorkerId&) = default;
};

// What this router has under way on a worker. Thread-safe.
struct OpenWork {
  std::atomic<int64_t> requests{0};
  std::atomic<int64_t> prompt_tokens{0};
};

// Counts one request on a worker while it exists. Move-only.
class WorkLease {
 public:
  WorkLease() = default;
  WorkLease(std::shared_ptr<OpenWork> work, int64_t prompt_tokens);
  WorkLease(WorkLease&& other) noexcept = default;
  WorkLease& operator=(WorkLease&& other) noexcept;
  ~WorkLease() { Release(); }

  void Release();

 private:
  std::shared_ptr<OpenWork> work_;
  int64_t prompt_tokens_ = 0;
};

// As the worker last reported it.
struct ReportedLoad {
  uint32_t running_requests = 0;
  uint32_t queued_requests = 0;
  uint64_t queued_tokens = 0;  // prompt tokens not yet computed
  uint64_t pages_total = 0;
  uint64_t pages_free = 0;
};

// What must be equal on workers that work together, by name.
using Semantics = std::map<std::string, std::string>;

// Names a row of the worker table as long as the router lives; never used again for another.
using WorkerKey = uint64_t;

struct Worker {
  WorkerKey key = 0;
  WorkerRole role = WorkerRole::kDecode;
  std::string target;  // host:port that the router dials
  std::string name;    // what people call it; empty: by `target`
  WorkerId id;
  bool ready = false;
  std::string not_ready_reason;                // empty when ready
  uint64_t semantics_hash = 0;                 // prefill and decode must agree: see fit.h
  std::shared_ptr<const Semantics> semantics;  // what it is of; null: the worker does not say
  std::vector<std::string> transports;  // that it can hand off by; empty: the worker does not say
  // It is ready, but fits no ready worker of the other role: how many, and why. Else empty.
  std::string mismatch;
  uint32_t max_context_tokens = 0;  // 0: no limit reported
  // A request failed on this incarnation a short while ago: used only when nothing else is left.
  Clock::TimePoint cooling_until{};

  ReportedLoad load;
  // The router's own open work when `load` was reported: what was opened since is not in it.
  int64_t requests_at_report = 0;
  int64_t prompt_tokens_at_report = 0;
  std::shared_ptr<OpenWork> open = std::make_shared<OpenWork>();

  // Ready, and with somebody to work with.
  bool Usable() const { return ready && mismatch.empty(); }

  // Requests and prompt tokens as of now: the report corrected by what this router did since.
  int64_t EstimatedRequests() const;
  int64_t EstimatedQueuedTokens() const;
};

struct Snapshot {
  std::vector<Worker> workers;  // in the order in which they became members
  // Prefill workers are configured. If none can be used at the moment, requests are refused: decode
  // workers would not stand what prefill workers were there for.
  bool prefill_is_split = false;

  // What people call this incarnation; empty if it has no name or is not known.
  std::string NameOf(const WorkerId& id) const;
  int Count(WorkerRole role) const;
  int CountReady(WorkerRole role) const;
};

}  // namespace baton::router
