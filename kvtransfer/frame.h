#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cache_layout.h"
#include "kernels/segments.h"
#include "kvtransfer/handoff_key.h"

// Frames: what travels from sender to receiver, byte by byte in WIRE.md. A frame is a head and a
// payload. The head is verified when it is parsed; the payload is verified by the copy that writes
// it, against the digest in the head: host_frame.h and device_frame.h put both together.

namespace baton::kvtransfer {

inline constexpr size_t kFrameHeaderBytes = 88;
inline constexpr size_t kSegmentBytes = 24;  // one entry of the segment table
// Limits what a hostile count can make a decoder allocate.
inline constexpr size_t kMaxSegments = 4096;
inline constexpr size_t kPayloadAlignment = 16;

// All of a frame of so many segments before its payload: header, table, digest of the payload. At
// most kSegmentBytes more for one segment more.
constexpr size_t HeadBytes(size_t segments) {
  const size_t bytes = kFrameHeaderBytes + segments * kSegmentBytes + sizeof(uint64_t);
  return (bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

// What guards a payload, as it stands in the header.
enum class DigestKind : uint32_t {
  kMulSum64 = kernels::kMulSum64,  // on a device
  kCrc32c = 2,                     // in main memory
};

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
  uint64_t digest = 0;  // that the payload must have
};

// Size of a frame of these segments.
size_t FrameBytes(std::span<const Segment> segments);

// Writes the head of a frame to `head`, which has HeadBytes(segments.size()) bytes.
void EncodeHead(const FrameHeader& header, std::span<const Segment> segments, DigestKind kind,
                uint64_t digest, std::span<std::byte> head);

// The sequence field of bytes that may be anything, unverified; 0 when they are too few. Lets both
// ends of a connection check that they speak of the same frame.
uint64_t PeekSequence(std::span<const std::byte> frame);
// The number of segments of bytes that may be anything, at most kMaxSegments, unverified.
size_t PeekSegments(std::span<const std::byte> head);

// Parses and verifies what may be anything, of a frame whose payload has a digest of `kind`: `head`
// is a copy of its first HeadBytes(PeekSegments(frame)) bytes, or of all if it has fewer. DATA_LOSS
// naming the first field that is wrong (with what it is and what it should be). Parts refer to
// `frame`, which is not touched. Ranges are non-empty and within int64; whether they belong to an
// attempt is the receiver's question.
absl::StatusOr<FrameView> DecodeHead(std::span<const std::byte> head,
                                     std::span<const std::byte> frame, DigestKind kind);

}  // namespace baton::kvtransfer
