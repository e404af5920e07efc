#include "kvtransfer/grpc/verdict_proto.h"

namespace baton::kvtransfer {

v1::FrameVerdict VerdictToProto(FrameVerdict verdict) {
  switch (verdict) {
    case FrameVerdict::kAccepted:
      return v1::FRAME_VERDICT_ACCEPTED;
    case FrameVerdict::kStale:
      return v1::FRAME_VERDICT_STALE;
    case FrameVerdict::kCorrupt:
      return v1::FRAME_VERDICT_CORRUPT;
    case FrameVerdict::kRejected:
      return v1::FRAME_VERDICT_REJECTED;
  }
  return v1::FRAME_VERDICT_UNSPECIFIED;
}

std::optional<FrameVerdict> VerdictFromProto(v1::FrameVerdict verdict) {
  switch (verdict) {
    case v1::FRAME_VERDICT_ACCEPTED:
      return FrameVerdict::kAccepted;
    case v1::FRAME_VERDICT_STALE:
      return FrameVerdict::kStale;
    case v1::FRAME_VERDICT_CORRUPT:
      return FrameVerdict::kCorrupt;
    case v1::FRAME_VERDICT_REJECTED:
      return FrameVerdict::kRejected;
    default:
      return std::nullopt;
  }
}

}  // namespace baton::kvtransfer
