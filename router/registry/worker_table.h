#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/registry/snapshot.h"

namespace baton::router {

struct WorkerSpec {
  WorkerRole role = WorkerRole::kDecode;
  std::string target = {};  // host:port

  friend bool operator==(const WorkerSpec&, const WorkerSpec&) = default;
};

// The answer to one poll.
struct WorkerReport {
  std::optional<WorkerRole> role;
  WorkerId self;  // an empty address stands for the one that was dialled
  std::string name = {};
  uint64_t semantics_hash = 0;
  Semantics semantics;                  // empty: the worker does not say
  std::vector<std::string> transports;  // empty: the worker does not say
  uint64_t tokenizer_hash = 0;          // 0: the worker does not know one
  uint32_t max_context_tokens = 0;
  uint32_t request_protocol = 0;  // see common/rpc/request_protocol.h
  bool ready = false;
  ReportedLoad load;
};

struct WorkerTableOptions {
  uint64_t tokenizer_hash = 0;    // of the router; a worker with another one is not used
  bool prefill_is_split = false;  // of every snapshot
  std::chrono::nanoseconds cool_down =
      std::chrono::seconds(2);  // doubles with each failure in a row
  std::chrono::nanoseconds max_cool_down = std::chrono::seconds(30);
};

// Which workers can be used, derived from what they report and from how requests fare on them. No
// thread, clock or socket inside; the caller serialises.
//
//   unreached -> ready          a report that is ready and compatible
//   ready -> not ready          a poll refused (at once) or timed out (twice in a row), a drain, or
//                               a report that does not fit
//   ready -> cooling -> ready   a request failed on this incarnation; over with time, a success, or
//                               a new incarnation
//   any -> leaving -> gone      no longer a member: gets nothing new, and is forgotten once nothing
//                               of this router runs on it; a member again before: as if never left
class WorkerTable {
 public:
  explicit WorkerTable(WorkerTableOptions options) : options_(options) {}

  // From now on exactly these are members, each once. Those that are new come behind the others.
  void SetMembers(const std::vector<WorkerSpec>& specs);

  // Calls that name a worker by a key are without effect once it is gone.
  // The router's open work when a poll was sent.
  struct OpenAtSend {
    int64_t requests = 0;
    int64_t prompt_tokens = 0;
  };
  OpenAtSend OpenNow(WorkerKey key) const;
  void OnReport(WorkerKey key, const WorkerReport& report, OpenAtSend open);
  void OnPollFailed(WorkerKey key, const absl::Status& status);

  // Another incarnation than the present one is history and changes nothing.
  void OnRequestFailed(const WorkerId& id, Clock::TimePoint now);
  // True when it ended a cool-down.
  bool OnRequestSucceeded(const WorkerId& id);

  Snapshot MakeSnapshot() const;
  // True once every worker has answered or failed a poll; so it is without any.
  bool AllPolled() const;

 private:
  struct Row {
    Worker worker;
    bool leaving = false;
    bool polled = false;
    int timeouts_in_a_row = 0;
    int failures_in_a_row = 0;  // of requests
  };

  Row* Find(WorkerKey key);
  Row* Find(const WorkerId& id);
  void Leave(Row& row);
  void ForgetIfDone(WorkerKey key);
  std::string WhyUnusable(const Row& row, const WorkerReport& report) const;

  const WorkerTableOptions options_;
  std::vector<Row> rows_;
  WorkerKey next_key_ = 0;
};

}  // namespace baton::router
