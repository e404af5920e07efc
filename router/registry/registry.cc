#include "router/registry/registry.h"

#include <utility>

#include "common/log.h"

namespace baton::router {
namespace {

void LogTransitions(const Snapshot& before, const Snapshot& after) {
  for (size_t i = 0; i < after.workers.size(); ++i) {
    const Worker& was = before.workers[i];
    const Worker& is = after.workers[i];
    if (is.ready && (!was.ready || was.id.incarnation != is.id.incarnation)) {
      spdlog::info("{} worker {} is ready, incarnation {:016x}", WorkerRoleName(is.role), is.target,
                   is.id.incarnation);
    } else if (!is.ready && was.not_ready_reason != is.not_ready_reason) {
      spdlog::warn("{} worker {} is not ready: {}", WorkerRoleName(is.role), is.target,
                   is.not_ready_reason);
    }
  }
}

}  // namespace

Registry::Registry(const std::vector<WorkerSpec>& specs, WorkerTableOptions options,
                   std::function<void(const Snapshot&)> on_change)
    : on_change_(std::move(on_change)), table_(specs, options) {
  for (const WorkerSpec& spec : specs) targets_.push_back(spec.target);
  MutexLock lock(mutex_);
  current_ = std::make_shared<Snapshot>(table_.MakeSnapshot());
  if (on_change_) on_change_(*current_);
}

void Registry::Publish() {
  auto next = std::make_shared<Snapshot>(table_.MakeSnapshot());
  LogTransitions(*current_, *next);
  current_ = std::move(next);
  if (on_change_) on_change_(*current_);
  changed_.NotifyAll();
}

std::shared_ptr<const Snapshot> Registry::Current() const {
  MutexLock lock(mutex_);
  return current_;
}

WorkerTable::OpenAtSend Registry::OpenNow(size_t index) const {
  MutexLock lock(mutex_);
  return table_.OpenNow(index);
}

void Registry::OnReport(size_t index, const WorkerReport& report, WorkerTable::OpenAtSend open) {
  MutexLock lock(mutex_);
  table_.OnReport(index, report, open);
  Publish();
}

void Registry::OnPollFailed(size_t index, const absl::Status& status) {
  MutexLock lock(mutex_);
  table_.OnPollFailed(index, status);
  Publish();
}

void Registry::OnRequestFailed(const WorkerId& id, Clock::TimePoint now) {
  MutexLock lock(mutex_);
  table_.OnRequestFailed(id, now);
  Publish();
}

void Registry::OnRequestSucceeded(const WorkerId& id) {
  MutexLock lock(mutex_);
  if (table_.OnRequestSucceeded(id)) Publish();
}

bool Registry::WaitFirstPolls(std::chrono::nanoseconds timeout) const {
  MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!table_.AllPolled()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    changed_.WaitFor(mutex_, left);
  }
  return true;
}

}  // namespace baton::router
