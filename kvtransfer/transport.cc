#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

std::string_view FrameVerdictName(FrameVerdict verdict) {
  switch (verdict) {
    case FrameVerdict::kAccepted:
      return "accepted";
    case FrameVerdict::kStale:
      return "stale";
    case FrameVerdict::kCorrupt:
      return "corrupt";
    case FrameVerdict::kRejected:
      return "rejected";
  }
  return "unknown";
}

}  // namespace baton::kvtransfer
