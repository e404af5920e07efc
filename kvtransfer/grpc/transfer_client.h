#pragma once

#include <memory>

#include "common/rpc/credentials.h"
#include "kvtransfer/transport.h"

// Role: transport "grpc": up to kStreamsPerPeer (limits.h) Transfer.Push streams per endpoint
// (host:port), each on a channel of its own. Why: works wherever the control plane works.
// Threading: as transport.h says. A frame goes out of the memory that it was registered in; the
// post completes when the frame is answered or its stream is dead. A single frame cannot be
// withdrawn: Cancel ends its stream, and another is opened when it is needed.

namespace baton::kvtransfer {

std::unique_ptr<Transport> MakeGrpcTransport(const rpc::Credentials& credentials = {});

}  // namespace baton::kvtransfer
