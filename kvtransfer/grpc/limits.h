#pragma once

#include <cstddef>

// What both ends of Transfer.Push keep to.

namespace baton::kvtransfer {

inline constexpr size_t kMaxGrpcFrameBytes = size_t{2} << 20;
// What a client sends: small enough that a frame stays in the cache while it is copied from layer
// to layer, and that its memory is not given back to the system in between.
inline constexpr size_t kGrpcFrameBytes = size_t{512} << 10;
// Frames of one stream that are not answered yet; a client that sends more is cut off.
inline constexpr int kMaxUnansweredFrames = 32;

}  // namespace baton::kvtransfer
