#pragma once

#include <atomic>
#include <functional>

#include "worker/role.h"

namespace baton::worker {

// A role without services that does what the test says.
struct PlainRole : Role {
  v1::WorkerRole kind() const override { return v1::WORKER_ROLE_DECODE; }
  absl::StatusOr<Services> Open(const Surroundings&) override { return Services(); }
  void Begin(const Loaded& loaded) override {
    if (on_begin) on_begin(loaded);
  }
  WorkerLoad load() const override {
    WorkerLoad load;
    load.running = 1;
    load.waiting = 2;
    load.waiting_tokens = 3;
    load.cache.pages_total = 9;
    load.cache.pages_free = 9;
    return load;
  }
  void Tick() override {}
  absl::Status TryTransport(const std::string&, const v1::WorkerRef&) override {
    return try_transport ? try_transport() : absl::OkStatus();
  }
  bool Drain(Clock::Duration) override {
    ++drains;
    return true;
  }
  void Stop(const absl::Status&) override { ++stops; }

  std::function<void(const Loaded&)> on_begin;
  std::function<absl::Status()> try_transport;
  std::atomic<int> drains = 0;
  std::atomic<int> stops = 0;
};

}  // namespace baton::worker
