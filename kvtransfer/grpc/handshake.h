#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/worker.pb.h"
#include "kvtransfer/manifest.h"

namespace baton::kvtransfer {

v1::Manifest ManifestToProto(const Manifest& manifest);
// What the peer said, unchecked: CheckCompatible refuses layouts that are not ours.
Manifest ManifestFromProto(const v1::Manifest& proto);

// WorkerControl.Handshake as both roles answer it: FAILED_PRECONDITION names the first field that
// differs, or the transports when there is none in common. `self` of the answer is left empty.
absl::StatusOr<v1::HandshakeResponse> AnswerHandshake(const Manifest& local,
                                                      const v1::HandshakeRequest& request);

}  // namespace baton::kvtransfer
