#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/common.pb.h"
#include "baton/v1/worker.pb.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/rpc/credentials.h"
#include "common/worker_load.h"
#include "common/worker_metrics.h"
#include "engine/engine.h"
#include "grpcpp/impl/service_type.h"
#include "kvtransfer/fault/control_faults.h"
#include "kvtransfer/fault/fault.h"
#include "kvtransfer/manifest.h"

namespace baton::worker {

// What a worker has for its role from the start; outlives it.
struct Surroundings {
  Incarnation incarnation = 0;
  WorkerMetrics& metrics;
  const rpc::Credentials& credentials;
  const kvtransfer::PlaneFaults& frame_faults;
  const kvtransfer::ControlFaults* control_faults = nullptr;  // none: null
};

// The same, once the model is loaded.
struct Loaded {
  engine::Engine& engine;
  const kvtransfer::Manifest& manifest;
  const v1::WorkerRef& self;  // as other processes know this worker
};

// What makes a worker a prefill or a decode worker: its services, its scheduler and its end of a
// hand-off. Called in this order: Open, Begin, Stop; the rest from any thread since Begin, also a
// while after Stop.
class Role {
 public:
  struct Services {
    std::vector<grpc::Service*> services;
    std::vector<std::string> names;  // fully qualified, as in rpc::ServerOptions
  };

  virtual ~Role() = default;
  virtual v1::WorkerRole kind() const = 0;

  // Makes the transports, and the services, which are called from soon afterwards until the role is
  // gone: with StillLoading as the answer before Begin, but for the transports' own.
  virtual absl::StatusOr<Services> Open(const Surroundings& surroundings) = 0;
  // The model is there: serves from now on.
  virtual void Begin(const Loaded& loaded) = 0;

  virtual WorkerLoad load() const = 0;  // quick
  virtual void Tick() = 0;              // several times a second, for deadlines; quick
  // Tries a transport towards a peer that shakes hands; may take a few seconds. OK for one that
  // needs no trial.
  virtual absl::Status TryTransport(const std::string& transport, const v1::WorkerRef& peer) = 0;

  // Refuses new work. True when all that there is has been done within `timeout`.
  virtual bool Drain(Clock::Duration timeout) = 0;
  // Ends all that runs, for this reason, and waits for it. Nothing was begun if Begin was not.
  virtual void Stop(const absl::Status& why) = 0;
};

// Like a refused connection to the caller, who asks another worker or asks again.
inline absl::Status StillLoading() {
  return absl::UnavailableError("the worker is still loading its model");
}

}  // namespace baton::worker
