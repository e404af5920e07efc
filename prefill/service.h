#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "baton/v1/prefill.grpc.pb.h"
#include "common/ids.h"
#include "kvtransfer/fault/control_faults.h"
#include "prefill/prefiller.h"

namespace baton::prefill {

struct PrefillServiceOptions {
  Incarnation incarnation = 0;
  uint64_t semantics_hash = 0;                        // of the manifest
  std::vector<std::string> transports;                // that grants may name
  const kvtransfer::ControlFaults* faults = nullptr;  // outlives every call; none: nullptr
};

// Prefill.Run on the wire: turns messages into calls of the Prefiller and back.
class PrefillService final : public v1::Prefill::CallbackService {
 public:
  // Prompts go to `prefiller` from now on; until then calls are UNAVAILABLE. It outlives every
  // call: shut the server down first. Once.
  void Begin(const PrefillServiceOptions& options, Prefiller& prefiller);

  grpc::ServerBidiReactor<v1::PrefillRunRequest, v1::PrefillRunResponse>* Run(
      grpc::CallbackServerContext* context) override;

 private:
  PrefillServiceOptions options_;  // written before prefiller_, read after it
  std::atomic<Prefiller*> prefiller_{nullptr};
};

}  // namespace baton::prefill
