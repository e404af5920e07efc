#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "router/registry/registry.h"
#include "router/registry/resolver.h"

namespace baton::router {

// One entry of a list of workers: host:port is a worker, dns:host:port as many as `host` has
// addresses.
struct ListedWorkers {
  WorkerRole role = WorkerRole::kDecode;
  std::string target;                     // host:port
  std::optional<std::string> dns_host{};  // of dns:host:port
  std::string dns_port{};
};

// INVALID_ARGUMENT names the entry that is neither, or stands there twice, by name and by dns: too.
absl::StatusOr<std::vector<ListedWorkers>> ParseWorkerList(WorkerRole role,
                                                           const std::vector<std::string>& entries);

// Keeps the members of a registry equal to what the lists name. Names are looked up again and again
// on a thread of its own, if there are any. A lookup that fails changes nothing: workers that are
// really gone are found out by the poller, and a DNS server that is down must not empty the fleet.
class Membership {
 public:
  // `registry` and `resolver` must outlive this object. Workers listed by address are members when
  // this returns.
  Membership(Registry* registry, std::vector<ListedWorkers> listed, Resolver* resolver,
             std::chrono::nanoseconds interval);
  // Waits for a lookup that is under way.
  ~Membership();

  // Waits until every name has been looked up once, in vain or not; false when `timeout` passed.
  bool WaitFirstLookups(std::chrono::nanoseconds timeout) const;

 private:
  void Run(std::chrono::nanoseconds interval);
  void LookUp();
  void Publish();

  struct Entry {
    ListedWorkers listed;
    std::vector<std::string> addresses;  // as last known
    std::string error;                   // of the last lookup; empty: it succeeded
  };

  Registry* const registry_;
  Resolver* const resolver_;
  std::vector<Entry> entries_;  // of the thread, once it runs

  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool looked_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // not joinable when no names are listed
};

}  // namespace baton::router
