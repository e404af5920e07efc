#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/landing.h"
#include "kvtransfer/record_mover.h"

// Frames in the staging memory of a device transport (WIRE.md): the head is written and read by the
// CPU, records move between cache and staging on the device, and a digest taken on the way stands
// in the head.

namespace baton::kvtransfer {

// Writes a frame to the front of `staging`, which is aligned to 16 bytes and holds at least
// FrameBytes(segments); returns that number.
size_t EncodeDeviceFrame(const FrameHeader& header, std::span<const Segment> segments,
                         const SequenceRecords& records, RecordMover& mover,
                         std::span<std::byte> staging);

// Parses and verifies the head of bytes that may be anything; errors as DecodeHead. The payload
// has not been looked at: FrameView::digest says what it must give.
absl::StatusOr<FrameView> DecodeDeviceFrame(std::span<const std::byte> staging, RecordMover& mover);

// Writes what was claimed of a frame and returns the digest of the whole payload: the rest of it,
// which is there already, is read too.
uint64_t ScatterDeviceFrame(const FrameView& frame, std::span<const Landing::Write> writes,
                            const SequenceRecords& records, RecordMover& mover);

}  // namespace baton::kvtransfer
