#include "router/registry/snapshot.h"

#include <algorithm>
#include <utility>

namespace baton::router {

const char* WorkerRoleName(WorkerRole role) {
  return role == WorkerRole::kPrefill ? "prefill" : "decode";
}

WorkLease::WorkLease(std::shared_ptr<OpenWork> work, int64_t prompt_tokens)
    : work_(std::move(work)), prompt_tokens_(prompt_tokens) {
  ++work_->requests;
  work_->prompt_tokens += prompt_tokens_;
}

WorkLease& WorkLease::operator=(WorkLease&& other) noexcept {
  if (this != &other) {
    Release();
    work_ = std::move(other.work_);
    prompt_tokens_ = other.prompt_tokens_;
  }
  return *this;
}

void WorkLease::Release() {
  if (work_ == nullptr) return;
  --work_->requests;
  work_->prompt_tokens -= prompt_tokens_;
  work_ = nullptr;
}

int64_t Worker::EstimatedRequests() const {
  const int64_t open_now = open->requests;
  const int64_t reported = int64_t{load.running_requests} + load.queued_requests;
  return std::max(open_now, reported + open_now - requests_at_report);
}

int64_t Worker::EstimatedQueuedTokens() const {
  const int64_t open_now = open->prompt_tokens;
  return std::max<int64_t>(
      0, static_cast<int64_t>(load.queued_tokens) + open_now - prompt_tokens_at_report);
}

std::string Snapshot::NameOf(const WorkerId& id) const {
  const auto found = std::ranges::find(workers, id, &Worker::id);
  return found == workers.end() ? "" : found->name;
}

int Snapshot::Count(WorkerRole role) const {
  return static_cast<int>(
      std::ranges::count_if(workers, [&](const Worker& w) { return w.role == role; }));
}

int Snapshot::CountReady(WorkerRole role) const {
  return static_cast<int>(
      std::ranges::count_if(workers, [&](const Worker& w) { return w.role == role && w.ready; }));
}

}  // namespace baton::router
