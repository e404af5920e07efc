#include "router/registry/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/host_port.h"
#include "common/log.h"

namespace baton::router {

absl::StatusOr<std::vector<ListedWorkers>> ParseWorkerList(
    WorkerRole role, const std::vector<std::string>& entries) {
  std::vector<ListedWorkers> listed;
  for (const std::string& entry : entries) {
    absl::string_view target = entry;
    const bool by_dns = absl::ConsumePrefix(&target, "dns:");
    const absl::StatusOr<HostPort> address = ParseHostPort(target);
    if (!address.ok() || address->port == 0) {
      return absl::InvalidArgumentError(absl::StrCat(WorkerRoleName(role), "-workers has '", entry,
                                                     "', expected host:port or dns:host:port"));
    }
    if (std::ranges::count(listed, target, &ListedWorkers::target) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(WorkerRoleName(role), "-workers has '", entry, "' more than once"));
    }
    ListedWorkers& workers = listed.emplace_back();
    workers.role = role;
    workers.target = std::string(target);
    if (!by_dns) continue;
    workers.dns_host = address->host;
    workers.dns_port = absl::StrCat(address->port);
  }
  return listed;
}

Membership::Membership(Registry* registry, std::vector<ListedWorkers> listed, Resolver* resolver,
                       std::chrono::nanoseconds interval)
    : registry_(registry), resolver_(resolver) {
  for (ListedWorkers& workers : listed) {
    Entry& entry = entries_.emplace_back();
    entry.listed = std::move(workers);
    if (!entry.listed.dns_host) entry.addresses = {entry.listed.target};
  }
  Publish();
  const bool has_names = std::ranges::any_of(
      entries_, [](const Entry& entry) { return entry.listed.dns_host.has_value(); });
  if (has_names) {
    thread_ = std::thread([this, interval] { Run(interval); });
  } else {
    MutexLock lock(mutex_);
    looked_up_ = true;
  }
}

Membership::~Membership() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

bool Membership::WaitFirstLookups(std::chrono::nanoseconds timeout) const {
  MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!looked_up_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    changed_.WaitFor(mutex_, left);
  }
  return true;
}

void Membership::Run(std::chrono::nanoseconds interval) {
  while (true) {
    LookUp();
    const auto next = std::chrono::steady_clock::now() + interval;
    MutexLock lock(mutex_);
    looked_up_ = true;
    changed_.NotifyAll();
    while (!stopping_) {
      const auto left = next - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds::zero()) break;
      changed_.WaitFor(mutex_, left);
    }
    if (stopping_) return;
  }
}

void Membership::LookUp() {
  bool changed = false;
  for (Entry& entry : entries_) {
    if (!entry.listed.dns_host) continue;
    absl::StatusOr<std::vector<std::string>> addresses =
        resolver_->Resolve(*entry.listed.dns_host, entry.listed.dns_port);
    std::string error = addresses.ok() ? "" : std::string(addresses.status().message());
    if (error != entry.error && !error.empty()) {
      spdlog::warn("{}; its {} known {} workers stay", error, entry.addresses.size(),
                   WorkerRoleName(entry.listed.role));
    }
    entry.error = std::move(error);
    if (!addresses.ok() || *addresses == entry.addresses) continue;
    entry.addresses = *std::move(addresses);
    changed = true;
  }
  if (changed) Publish();
}

void Membership::Publish() {
  std::vector<WorkerSpec> members;
  for (const Entry& entry : entries_) {
    for (const std::string& address : entry.addresses) {
      members.push_back({.role = entry.listed.role, .target = address});
    }
  }
  registry_->SetMembers(members);
}

}  // namespace baton::router
