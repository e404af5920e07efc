#pragma once

#include <cstddef>

// What both ends of Transfer.Push keep to.

namespace baton::kvtransfer {

inline constexpr size_t kMaxGrpcFrameBytes = size_t{2} << 20;
// Frames of one stream that are not answered yet; a client that sends more is cut off.
inline constexpr int kMaxUnansweredFrames = 32;

}  // namespace baton::kvtransfer
