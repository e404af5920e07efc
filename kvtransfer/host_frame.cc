#include "kvtransfer/host_frame.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "kernels/crc32c.h"

namespace baton::kvtransfer {

size_t EncodeFrame(const FrameHeader& header, std::span<const Segment> segments,
                   const SequenceRecords& records, std::span<std::byte> buffer) {
  const size_t bytes = FrameBytes(segments);
  BATON_CHECK(buffer.size() >= bytes) << buffer.size() << " for " << bytes;
  const size_t head_bytes = HeadBytes(segments.size());
  size_t at = head_bytes;
  uint32_t crc = 0;
  for (const Segment& segment : segments) {
    crc = records.Gather(segment.range, buffer.subspan(at, segment.bytes), crc);
    at += segment.bytes;
  }
  EncodeHead(header, segments, DigestKind::kCrc32c, crc, buffer.first(head_bytes));
  return bytes;
}

absl::StatusOr<FrameView> DecodeFrame(std::span<const std::byte> frame) {
  // A copy, which stays what it was when it was verified.
  std::vector<std::byte> head(frame.begin(),
                              frame.begin() + std::min(frame.size(), kFrameHeaderBytes));
  const size_t head_bytes = std::min(frame.size(), HeadBytes(PeekSegments(head)));
  head.insert(head.end(), frame.begin() + head.size(), frame.begin() + head_bytes);
  return DecodeHead(head, frame, DigestKind::kCrc32c);
}

uint64_t ScatterFrame(const FrameView& frame, std::span<const Landing::Write> writes,
                      SequenceRecords& records) {
  const std::byte* at = frame.parts.front().payload.data();
  uint32_t crc = 0;
  const auto pass_over_to = [&](const std::byte* to) {
    crc = kernels::Crc32c({at, to}, crc);
    at = to;
  };
  for (const Landing::Write& write : writes) {
    pass_over_to(write.bytes.data());
    crc = records.Scatter(write.range, write.bytes, crc);
    at += write.bytes.size();
  }
  pass_over_to(frame.parts.back().payload.data() + frame.parts.back().payload.size());
  return crc;
}

}  // namespace baton::kvtransfer
