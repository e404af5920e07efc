#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "common/mutex.h"
#include "common/rpc/worker_control_client.h"
#include "router/registry/registry.h"

namespace baton::router {

// Asks every worker of the registry for WorkerControl.GetInfo, again and again, and tells the
// registry. A worker that answers slowly delays no other, and is not asked again before it has
// answered or the deadline has passed. Runs from construction to destruction, on a thread of its
// own.
class WorkerPoller {
 public:
  struct Options {
    std::chrono::nanoseconds interval = std::chrono::milliseconds(500);
    std::chrono::nanoseconds deadline = std::chrono::seconds(1);
    rpc::Credentials credentials = {};
  };

  // `registry` must outlive this object.
  WorkerPoller(Registry* registry, Options options);
  ~WorkerPoller();

 private:
  // Shared with polls under way, which may be answered after the poller is gone.
  struct Shared;

  void Run();
  void FollowMembers();
  void Poll(WorkerKey key, const rpc::WorkerControlClient& client);

  Registry* const registry_;
  const Options options_;
  std::map<WorkerKey, rpc::WorkerControlClient> clients_;  // of the polling thread
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace baton::router
