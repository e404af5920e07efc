#pragma once

#include <cstddef>

// What both ends of Transfer.Push keep to.

namespace baton::kvtransfer {

inline constexpr size_t kMaxGrpcFrameBytes = size_t{2} << 20;
// What a client sends: small enough that a frame stays in the cache while it is copied from layer
// to layer, and that its memory is not given back to the system in between.
inline constexpr size_t kGrpcFrameBytes = size_t{512} << 10;
// Streams, each on a connection of its own, that a client opens to one peer while it has frames for
// more: what goes to the kernel and comes out of it is copied by several threads then.
inline constexpr size_t kStreamsPerPeer = 2;
// Frames of one stream that are not answered yet; a client that sends more is cut off.
inline constexpr int kMaxUnansweredFrames = 32;

}  // namespace baton::kvtransfer
