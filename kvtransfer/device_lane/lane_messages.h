#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "kvtransfer/transport.h"

// What the two ends of a device lane say to each other. Each message arrives once, in whatever
// order: they may travel on several streams.
//
//   prefill                          decode
//   Offer(post, bytes)    -------->  waits for free staging memory
//                         <--------  Grant(post, sequence): memory is reserved
//   Commit(sequence)      -------->
//   both run group `sequence` on the device, in order of sequence, whatever happens to the request
//                         <--------  Answer(sequence, verdict)
//   Link(bytes)           <------->  what the links themselves have to say (device_link.h)
//
// Decode assigns the sequence numbers 1, 2, 3, ... Every number is decided once, by Commit or, when
// the post was cancelled before the grant came, by Decline; both sides issue what is committed
// strictly in the order of the numbers, each number only when all before it are decided. That is
// the whole of the ordering rule, and what a device link demands: it matches groups by order alone.
//
// Both ends keep to bounds, so that what either has to remember of the other is bounded too: at
// most kMaxGroupsInFlight groups are in flight, and a link that does not exist yet is told at most
// kMaxEarlyLinks things. Who exceeds them, or decides or answers what there is not, loses the
// generation.
//
// A fault ends a generation on both sides: the link is aborted, all its groups fail, numbers start
// again at 1 over a new link once both have said Reset with the same generation. Messages of other
// generations are dropped, but for a newer one, which says that the peer has left this one.

namespace baton::kvtransfer {

inline constexpr size_t kMaxEarlyLinks = 4;

struct LaneOffer {
  uint64_t post = 0;
  uint64_t bytes = 0;
};
struct LaneGrant {
  uint64_t post = 0;
  uint64_t sequence = 0;
};
struct LaneCommit {
  uint64_t sequence = 0;
};
struct LaneDecline {
  uint64_t sequence = 0;
};
struct LaneAnswer {
  uint64_t sequence = 0;
  FrameVerdict verdict = FrameVerdict::kAccepted;
  std::string detail{};
};
struct LaneReset {};
struct LaneLink {
  std::string bytes;
};

struct LaneMessage {
  uint64_t generation = 0;
  std::variant<LaneOffer, LaneGrant, LaneCommit, LaneDecline, LaneAnswer, LaneReset, LaneLink> body;
};

}  // namespace baton::kvtransfer
