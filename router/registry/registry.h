#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "router/registry/worker_table.h"

namespace baton::router {

// The worker table behind a lock, published as immutable snapshots. Thread-safe.
class Registry {
 public:
  // `on_change` (may be empty) is called with every new snapshot, under the registry's lock: it
  // must be quick and must not call back.
  Registry(const std::vector<WorkerSpec>& specs, WorkerTableOptions options,
           std::function<void(const Snapshot&)> on_change);

  std::shared_ptr<const Snapshot> Current() const;

  size_t size() const { return targets_.size(); }
  const std::string& target(size_t index) const { return targets_[index]; }

  WorkerTable::OpenAtSend OpenNow(size_t index) const;
  void OnReport(size_t index, const WorkerReport& report, WorkerTable::OpenAtSend open);
  void OnPollFailed(size_t index, const absl::Status& status);
  void OnRequestFailed(const WorkerId& id, Clock::TimePoint now);
  void OnRequestSucceeded(const WorkerId& id);

  // Waits until every worker has answered or failed its first poll; false when `timeout` passed.
  bool WaitFirstPolls(std::chrono::nanoseconds timeout) const;

 private:
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::vector<std::string> targets_;
  const std::function<void(const Snapshot&)> on_change_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  WorkerTable table_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Snapshot> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
