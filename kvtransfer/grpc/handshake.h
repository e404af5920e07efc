#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "baton/v1/worker.pb.h"
#include "common/worker_metrics.h"
#include "kvtransfer/manifest.h"

namespace baton::kvtransfer {

v1::Manifest ManifestToProto(const Manifest& manifest);
// What the peer said, unchecked: CheckCompatible refuses layouts that are not ours.
Manifest ManifestFromProto(const v1::Manifest& proto);

// Tries a transport towards the caller, who waits for a few seconds; OK for those that need no
// trial.
using TransportProbe = std::function<absl::Status(const std::string& transport)>;

// WorkerControl.Handshake as both roles answer it, with the best common transport that works and
// with why better ones do not. FAILED_PRECONDITION names the first field that differs, or the
// transports when there is none in common that works. `self` of the answer is left empty.
absl::StatusOr<v1::HandshakeResponse> AnswerHandshake(const Manifest& local,
                                                      const v1::HandshakeRequest& request,
                                                      const TransportProbe& probe);

// Counts and logs what a handshake has chosen and refused: nothing falls back silently.
void CountTransports(const v1::HandshakeResponse& response, WorkerMetrics& metrics);

}  // namespace baton::kvtransfer
