#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "decode/config.h"
#include "decode/decoder.h"

namespace baton::decode {

// A whole decode worker: engine, receiver, services, metrics. Any number in one process.
class DecodeWorker {
 public:
  using Config = DecodeConfig;

  // Loads the model, then serves. Errors name the flag, file or address at fault.
  static absl::StatusOr<std::unique_ptr<DecodeWorker>> Start(const DecodeConfig& config);
  // Stop.
  ~DecodeWorker();

  // host:port of its gRPC server, as told to others.
  std::string address() const;
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
  explicit DecodeWorker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::decode
