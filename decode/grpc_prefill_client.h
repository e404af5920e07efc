#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "baton/v1/worker.pb.h"
#include "common/mutex.h"
#include "common/rpc/credentials.h"
#include "common/worker_metrics.h"
#include "decode/prefill_client.h"
#include "kvtransfer/fault/control_faults.h"
#include "kvtransfer/manifest.h"

namespace baton::decode {

// Prefill.Run over gRPC. Before the first attempt at a prefill worker, and whenever it has another
// incarnation, the manifests are compared (WorkerControl.Handshake); the result is kept.
// Thread-safe.
class GrpcPrefillClient final : public PrefillClient {
 public:
  // `self` is this worker as others know it. `metrics` and `faults` (none: nullptr) outlive
  // every call's on_end.
  GrpcPrefillClient(kvtransfer::Manifest manifest, v1::WorkerRef self, WorkerMetrics& metrics,
                    const rpc::Credentials& credentials = {},
                    const kvtransfer::ControlFaults* faults = nullptr);
  ~GrpcPrefillClient() override;

  std::shared_ptr<PrefillCall> Open(const Peer& peer, PrefillOpen open,
                                    PrefillEvents events) override;

  // Forgets addresses that no call has used for `unused` and nobody answers at: workers come and go
  // under ever new addresses, and a connection that fails is tried again for as long as it is kept.
  void DropDeadLinks(Clock::Duration unused);
  size_t links() const;  // addresses kept

 private:
  // What all calls need; kept by each, so that they may outlive the client.
  struct Shared;
  class Link;
  class Call;

  std::shared_ptr<Link> LinkTo(const std::string& address);

  const std::shared_ptr<const Shared> shared_;
  struct KeptLink {
    std::shared_ptr<Link> link;
    Clock::TimePoint used_at;
  };
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, KeptLink> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::decode
