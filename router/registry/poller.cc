#include "router/registry/poller.h"

#include <set>
#include <utility>

#include "baton/v1/worker.pb.h"

namespace baton::router {
namespace {

WorkerReport FromProto(const v1::GetInfoResponse& info) {
  WorkerReport report;
  if (info.role() == v1::WORKER_ROLE_PREFILL) report.role = WorkerRole::kPrefill;
  if (info.role() == v1::WORKER_ROLE_DECODE) report.role = WorkerRole::kDecode;
  report.self = {.address = info.self().address(), .incarnation = info.self().incarnation()};
  report.name = info.name();
  report.semantics_hash = info.semantics_hash();
  for (const v1::ManifestField& field : info.semantics()) {
    report.semantics.emplace(field.name(), field.value());
  }
  report.transports.assign(info.transports().begin(), info.transports().end());
  report.tokenizer_hash = info.tokenizer_hash();
  report.max_context_tokens = info.max_context_tokens();
  report.request_protocol = info.request_protocol();
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
  std::set<WorkerKey> under_way ABSL_GUARDED_BY(mutex);
};

WorkerPoller::WorkerPoller(Registry* registry, Options options)
    : registry_(registry), options_(options), shared_(std::make_shared<Shared>()) {
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
    FollowMembers();
    for (const auto& [key, client] : clients_) Poll(key, client);
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

void WorkerPoller::FollowMembers() {
  const std::shared_ptr<const Snapshot> snapshot = registry_->Current();
  std::set<WorkerKey> members;
  for (const Worker& worker : snapshot->workers) {
    members.insert(worker.key);
    clients_.try_emplace(worker.key, worker.target, options_.credentials);
  }
  std::erase_if(clients_, [&](const auto& client) { return !members.contains(client.first); });
}

void WorkerPoller::Poll(WorkerKey key, const rpc::WorkerControlClient& client) {
  {
    MutexLock lock(shared_->mutex);
    if (!shared_->under_way.insert(key).second) return;
  }
  const WorkerTable::OpenAtSend open = registry_->OpenNow(key);
  client.GetInfo(options_.deadline, [registry = registry_, shared = shared_, key,
                                     open](absl::StatusOr<v1::GetInfoResponse> info) {
    // Held while the registry is told, so that the destructor waits for it.
    MutexLock lock(shared->mutex);
    shared->under_way.erase(key);
    if (shared->stopping) return;
    if (info.ok()) {
      registry->OnReport(key, FromProto(*info), open);
    } else {
      registry->OnPollFailed(key, info.status());
    }
  });
}

}  // namespace baton::router
