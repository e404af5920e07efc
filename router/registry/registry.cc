#include "router/registry/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace baton::router {
namespace {

const Worker* FindIn(const Snapshot& snapshot, WorkerKey key) {
  const auto worker =
      std::ranges::find_if(snapshot.workers, [&](const Worker& w) { return w.key == key; });
  return worker == snapshot.workers.end() ? nullptr : &*worker;
}

// "10.0.0.1:7001", "10.0.0.1:7001 (prefill-0)".
std::string Called(const Worker& worker) {
  return worker.name.empty() ? worker.target : absl::StrCat(worker.target, " (", worker.name, ")");
}

void LogTransitions(const Snapshot& before, const Snapshot& after) {
  for (const Worker& is : after.workers) {
    const Worker* was = FindIn(before, is.key);
    if (was == nullptr) {
      spdlog::info("{} worker {} is a member", WorkerRoleName(is.role), Called(is));
    } else if (is.ready && (!was->ready || was->id.incarnation != is.id.incarnation)) {
      spdlog::info("{} worker {} is ready{}, incarnation {:016x}", WorkerRoleName(is.role),
                   Called(is), is.id.address == is.target ? "" : " and advertises " + is.id.address,
                   is.id.incarnation);
    } else if (!is.ready && was->not_ready_reason != is.not_ready_reason) {
      // Who has never answered may still be starting, which is nothing to warn of.
      const bool known = is.id.incarnation != 0;
      spdlog::log(known ? spdlog::level::warn : spdlog::level::info,
                  "{} worker {} is not ready{}: {}", WorkerRoleName(is.role), Called(is),
                  known ? "" : " yet", is.not_ready_reason);
    }
    if (was != nullptr && is.ready && was->mismatch != is.mismatch) {
      if (is.mismatch.empty()) {
        spdlog::info("{} worker {} has workers that fit", WorkerRoleName(is.role), Called(is));
      } else {
        spdlog::warn("{} worker {} cannot be used: {}", WorkerRoleName(is.role), Called(is),
                     is.mismatch);
      }
    }
  }
  for (const Worker& was : before.workers) {
    if (FindIn(after, was.key) == nullptr) {
      spdlog::info("{} worker {} is forgotten", WorkerRoleName(was.role), Called(was));
    }
  }
}

}  // namespace

Registry::Registry(WorkerTableOptions options)
    : table_(options), current_(std::make_shared<Snapshot>(table_.MakeSnapshot())) {}

void Registry::Publish() {
  auto next = std::make_shared<Snapshot>(table_.MakeSnapshot());
  LogTransitions(*current_, *next);
  current_ = std::move(next);
  changed_.NotifyAll();
}

std::shared_ptr<const Snapshot> Registry::Current() const {
  MutexLock lock(mutex_);
  return current_;
}

void Registry::SetMembers(const std::vector<WorkerSpec>& specs) {
  MutexLock lock(mutex_);
  table_.SetMembers(specs);
  Publish();
}

WorkerTable::OpenAtSend Registry::OpenNow(WorkerKey key) const {
  MutexLock lock(mutex_);
  return table_.OpenNow(key);
}

void Registry::OnReport(WorkerKey key, const WorkerReport& report, WorkerTable::OpenAtSend open) {
  MutexLock lock(mutex_);
  table_.OnReport(key, report, open);
  Publish();
}

void Registry::OnPollFailed(WorkerKey key, const absl::Status& status) {
  MutexLock lock(mutex_);
  table_.OnPollFailed(key, status);
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
