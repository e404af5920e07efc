#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/landing.h"

// Frames in main memory (WIRE.md). Records are copied once on each side, between cache and frame;
// the CRC-32C of the payload is taken by those copies.

namespace baton::kvtransfer {

// Writes a frame to the front of `buffer`, which holds at least FrameBytes(segments); returns that
// number.
size_t EncodeFrame(const FrameHeader& header, std::span<const Segment> segments,
                   const SequenceRecords& records, std::span<std::byte> buffer);

// Parses and verifies the head of bytes that may be anything, and that somebody may change
// meanwhile; errors as DecodeHead. The payload has not been looked at: FrameView::digest says what
// it must give.
absl::StatusOr<FrameView> DecodeFrame(std::span<const std::byte> frame);

// Writes what was claimed of a frame and returns the digest of the whole payload: of what has been
// written, and of the rest, which is there already, as it was read.
uint64_t ScatterFrame(const FrameView& frame, std::span<const Landing::Write> writes,
                      SequenceRecords& records);

}  // namespace baton::kvtransfer
