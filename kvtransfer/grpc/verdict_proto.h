#pragma once

#include <optional>

#include "baton/v1/transfer.pb.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

v1::FrameVerdict VerdictToProto(FrameVerdict verdict);
// nullopt for values that this version does not know.
std::optional<FrameVerdict> VerdictFromProto(v1::FrameVerdict verdict);

}  // namespace baton::kvtransfer
