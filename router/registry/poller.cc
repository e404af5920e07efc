#include "router/registry/poller.h"

#include <utility>
#include <vector>

#include "baton/v1/worker.pb.h"

namespace baton::router {
namespace {

WorkerReport FromProto(const v1::GetInfoResponse& info) {
  WorkerReport report;
  if (info.role() == v1::WORKER_ROLE_PREFILL) report.role = WorkerRole::kPrefill;
  if (info.role() == v1::WORKER_ROLE_DECODE) report.role = WorkerRole::kDecode;
  report.self = {.address = info.self().address(), .incarnation = info.self().incarnation()};
  report.semantics_hash = info.semantics_hash();
  report.tokenizer_hash = info.tokenizer_hash();
  report.max_context_tokens = info.max_context_tokens();
  report.ready = info.ready();
  report.load = {.running_requests = info.load().running_requests(),
                 .queued_requests = info.load().queued_requests(),
                 .queued_tokens = info.load().queued_tokens(),
                 .pages_total = info.load().pages_total(),
                 .pages_free = info.load().pages_free()};
  return report;
}

}  // namespace

struct WorkerPoller::Shared {
  Mutex mutex;
  CondVar wake;
  bool stopping ABSL_GUARDED_BY(mutex) = false;  // the registry may be gone
  std::vector<bool> under_way ABSL_GUARDED_BY(mutex);
};

WorkerPoller::WorkerPoller(Registry* registry, Options options)
    : registry_(registry), options_(options), shared_(std::make_shared<Shared>()) {
  {
    MutexLock lock(shared_->mutex);
    shared_->under_way.resize(registry->size());
  }
  for (size_t i = 0; i < registry->size(); ++i) clients_.emplace_back(registry->target(i));
  thread_ = std::thread([this] { Run(); });
}

WorkerPoller::~WorkerPoller() {
  {
    MutexLock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->wake.NotifyAll();
  thread_.join();
}

void WorkerPoller::Run() {
  auto next = std::chrono::steady_clock::now();
  while (true) {
    for (size_t i = 0; i < clients_.size(); ++i) Poll(i);
    next += options_.interval;
    MutexLock lock(shared_->mutex);
    while (!shared_->stopping) {
      const auto left = next - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds::zero()) break;
      shared_->wake.WaitFor(shared_->mutex, left);
    }
    if (shared_->stopping) return;
  }
}

void WorkerPoller::Poll(size_t index) {
  {
    MutexLock lock(shared_->mutex);
    if (shared_->under_way[index]) return;
    shared_->under_way[index] = true;
  }
  const WorkerTable::OpenAtSend open = registry_->OpenNow(index);
  clients_[index].GetInfo(options_.deadline, [registry = registry_, shared = shared_, index,
                                              open](absl::StatusOr<v1::GetInfoResponse> info) {
    // Held while the registry is told, so that the destructor waits for it.
    MutexLock lock(shared->mutex);
    shared->under_way[index] = false;
    if (shared->stopping) return;
    if (info.ok()) {
      registry->OnReport(index, FromProto(*info), open);
    } else {
      registry->OnPollFailed(index, info.status());
    }
  });
}

}  // namespace baton::router
