#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "router/registry/worker_table.h"

namespace baton::router {

// The worker table behind a lock, published as immutable snapshots. Thread-safe.
class Registry {
 public:
  explicit Registry(WorkerTableOptions options);

  std::shared_ptr<const Snapshot> Current() const;

  void SetMembers(const std::vector<WorkerSpec>& specs);
  WorkerTable::OpenAtSend OpenNow(WorkerKey key) const;
  void OnReport(WorkerKey key, const WorkerReport& report, WorkerTable::OpenAtSend open);
  void OnPollFailed(WorkerKey key, const absl::Status& status);
  void OnRequestFailed(const WorkerId& id, Clock::TimePoint now);
  void OnRequestSucceeded(const WorkerId& id);

  // Waits until every worker has answered or failed its first poll; false when `timeout` passed.
  bool WaitFirstPolls(std::chrono::nanoseconds timeout) const;

 private:
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  WorkerTable table_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Snapshot> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
