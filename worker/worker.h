#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/worker_load.h"
#include "worker/config.h"
#include "worker/role.h"

namespace baton::worker {

// A whole worker: ports, health, metrics, the engine, and the role that it plays with it. Any
// number in one process.
class Worker {
 public:
  // Binds the ports, loads the model, then serves: until then health is NOT_SERVING and calls are
  // UNAVAILABLE. Errors name the flag, file or address at fault; those that need no model come
  // before it is loaded.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerConfig& config,
                                                       std::unique_ptr<Role> role);
  // Stop.
  ~Worker();

  // host:port of its gRPC server, as told to others.
  std::string address() const;
  // "listening grpc=host:port metrics=host:port incarnation=...": for scripts, on stdout. Without
  // metrics= if they are not served.
  std::string ListeningLine() const;
  WorkerLoad load() const;
  const Metrics& metrics() const;
  // Every page and slot is free or has exactly one owner; see Engine::AuditCache.
  absl::Status AuditCache() const;

  // Not ready, refuses new work, finishes what runs: true when all is done within `timeout`.
  bool Drain(Clock::Duration timeout);
  // Cancels what runs and stops serving. Idempotent.
  void Stop();

 private:
  struct Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The end of a worker's process: drains, then stops, but not before routers have noticed.
void DrainAndStop(Worker& worker, Clock::Duration timeout);

}  // namespace baton::worker
