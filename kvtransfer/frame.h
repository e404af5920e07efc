#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "kvtransfer/handoff_key.h"

// Frames: what travels from sender to receiver, byte by byte in WIRE.md.

namespace baton::kvtransfer {

inline constexpr size_t kFrameHeaderBytes = 88;
inline constexpr size_t kSegmentBytes = 24;  // one entry of the segment table
// Limits what a hostile count can make a decoder allocate.
inline constexpr size_t kMaxSegments = 4096;

enum class FrameKind : uint16_t {
  kProgress = 1,  // the prompt is still being computed: append-only records alone
  kTail = 2,      // the prompt is computed: any record
};

struct FrameHeader {
  FrameKind kind = FrameKind::kProgress;
  HandoffKey key;
  uint64_t sequence = 0;     // unique within the sender's incarnation; the same when sent again
  uint64_t first_token = 0;  // of the grant
  uint64_t tokens = 0;       // kTail: of the prompt; kProgress: computed so far
};

// Consecutive records of one layer.
struct Segment {
  RecordRange range;
  RecordFormat format = RecordFormat::kBf16;
  uint32_t bytes = 0;  // of all its records
};

struct FrameView {
  struct Part {
    Segment segment;
    std::span<const std::byte> payload;  // segment.bytes of the frame
  };
  FrameHeader header;
  std::vector<Part> parts;
  uint64_t digest = 0;  // kMulSum64 of a payload on a device
};

// Size of a frame of these segments.
size_t FrameBytes(std::span<const Segment> segments);

using GatherFn = std::function<void(const RecordRange& range, std::span<std::byte> bytes)>;

// Writes a frame to the front of `buffer`, which holds at least FrameBytes(segments); each
// segment's payload is gathered straight to its place. Returns FrameBytes(segments).
size_t EncodeFrame(const FrameHeader& header, std::span<const Segment> segments,
                   const GatherFn& gather, std::span<std::byte> buffer);

// The sequence field of bytes that may be anything, unverified; 0 when they are too few. Lets both
// ends of a connection check that they speak of the same frame.
uint64_t PeekSequence(std::span<const std::byte> frame);

// What the checksum field of a frame must say: of all its bytes but that field. 0 when they are too
// few for a header.
uint32_t FrameChecksum(std::span<const std::byte> frame);
// The same while the frame is copied to `to`.
uint32_t CopyFrame(std::span<const std::byte> frame, std::byte* to);

// Parses and verifies bytes that may be anything, of which FrameChecksum is `checksum`. DATA_LOSS
// naming the first field that is wrong (with what it is and what it should be). The view refers to
// `frame`. Ranges are non-empty and within int64; whether they belong to an attempt is the
// receiver's question.
absl::StatusOr<FrameView> DecodeFrame(std::span<const std::byte> frame, uint32_t checksum);
inline absl::StatusOr<FrameView> DecodeFrame(std::span<const std::byte> frame) {
  return DecodeFrame(frame, FrameChecksum(frame));
}

// Frames whose payload lies on a device: all before it, the head, is apart. device_frame.h puts
// both together.

size_t DeviceHeadBytes(size_t segments);  // a multiple of 16
size_t DeviceFrameBytes(std::span<const Segment> segments);
// How much more a device frame may take than a frame of the same segments.
inline constexpr size_t kDeviceHeadExtra = 24;
// `head` has DeviceHeadBytes(segments.size()) bytes.
void EncodeDeviceHead(const FrameHeader& header, std::span<const Segment> segments, uint64_t digest,
                      std::span<std::byte> head);
// The number of segments of bytes that may be anything, at most kMaxSegments, unverified.
size_t PeekSegments(std::span<const std::byte> head);
// As DecodeFrame; parts refer to `frame`, which begins with a copy of `head` and is not touched.
absl::StatusOr<FrameView> DecodeDeviceHead(std::span<const std::byte> head,
                                           std::span<const std::byte> frame);

}  // namespace baton::kvtransfer
