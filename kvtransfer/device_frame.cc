#include "kvtransfer/device_frame.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"

namespace baton::kvtransfer {
namespace {

// Most heads in one read.
constexpr size_t kFirstRead = 4096;

// Segments of a payload, one behind the other.
class Payload {
 public:
  void Add(const SequenceRecords& records, const RecordRange& range) {
    pieces_.clear();
    records.AppendPieces(range, &pieces_);
    for (const RecordPiece& piece : pieces_) Add(piece.data, piece.bytes);
  }
  void Add(std::byte* data, int64_t bytes) {
    segments_.push_back({.data = data, .offset = bytes_, .bytes = bytes});
    bytes_ += bytes;
  }
  int64_t bytes() const { return bytes_; }
  std::span<const kernels::Segment> segments() const { return segments_; }

 private:
  std::vector<RecordPiece> pieces_;
  std::vector<kernels::Segment> segments_;
  int64_t bytes_ = 0;
};

}  // namespace

size_t EncodeDeviceFrame(const FrameHeader& header, std::span<const Segment> segments,
                         const SequenceRecords& records, RecordMover& mover,
                         std::span<std::byte> staging) {
  const size_t bytes = FrameBytes(segments);
  BATON_CHECK(staging.size() >= bytes) << staging.size() << " for " << bytes;
  std::vector<std::byte> head(HeadBytes(segments.size()));
  Payload payload;
  for (const Segment& segment : segments) payload.Add(records, segment.range);
  BATON_CHECK(head.size() + static_cast<size_t>(payload.bytes()) == bytes) << payload.bytes();
  const uint64_t digest = mover.Gather(payload.segments(), staging.data() + head.size());
  EncodeHead(header, segments, DigestKind::kMulSum64, digest, head);
  mover.Write(head, staging.data());
  return bytes;
}

absl::StatusOr<FrameView> DecodeDeviceFrame(std::span<const std::byte> staging,
                                            RecordMover& mover) {
  std::vector<std::byte> head(std::min(staging.size(), kFirstRead));
  mover.Read(staging.data(), head);
  const size_t needed = std::min(staging.size(), HeadBytes(PeekSegments(head)));
  const size_t have = head.size();
  head.resize(needed);
  if (needed > have) mover.Read(staging.data() + have, std::span(head).subspan(have));
  return DecodeHead(head, staging, DigestKind::kMulSum64);
}

uint64_t ScatterDeviceFrame(const FrameView& frame, std::span<const Landing::Write> writes,
                            const SequenceRecords& records, RecordMover& mover) {
  const std::byte* const begin = frame.parts.front().payload.data();
  const std::byte* const end =
      frame.parts.back().payload.data() + frame.parts.back().payload.size();
  Payload payload;
  // What is not claimed is copied onto itself, so that the digest is of all there is.
  const auto pass_over_to = [&](const std::byte* to) {
    const std::byte* const at = begin + payload.bytes();
    if (to > at) payload.Add(const_cast<std::byte*>(at), to - at);
  };
  for (const Landing::Write& write : writes) {
    pass_over_to(write.bytes.data());
    payload.Add(records, write.range);
  }
  pass_over_to(end);
  return mover.Scatter(payload.segments(), begin);
}

}  // namespace baton::kvtransfer
