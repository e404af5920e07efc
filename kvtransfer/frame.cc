#include "kvtransfer/frame.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "kernels/crc32c.h"

namespace baton::kvtransfer {
namespace {

constexpr uint32_t kMagic = 0x46564B42;  // "BKVF" in memory
constexpr uint16_t kVersion = 2;
constexpr size_t kChecksumAt = 12;
constexpr size_t kSegmentCountAt = 36;
constexpr size_t kSequenceAt = 56;
constexpr size_t kChecksumEnd = kChecksumAt + sizeof(uint32_t);

// Little-endian whatever the machine's order.
class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}

  template <typename T>
  void Put(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (size_t i = 0; i < sizeof(T); ++i) *to_++ = static_cast<std::byte>(value >> (8 * i));
  }

 private:
  std::byte* to_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : from_(from) {}

  template <typename T>
  T Get() {
    static_assert(std::is_unsigned_v<T>);
    BATON_CHECK(from_.size() >= sizeof(T)) << "the caller checks sizes first";
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<T>(static_cast<T>(from_[i]) << 8 * i);
    from_ = from_.subspan(sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> from_;
};

uint32_t PayloadBytes(std::span<const Segment> segments) {
  uint32_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  return bytes;
}

void PutSegment(const Segment& segment, std::byte* to) {
  Writer writer(to);
  writer.Put(static_cast<uint8_t>(segment.range.stream));
  writer.Put(static_cast<uint8_t>(segment.format));
  writer.Put(uint16_t{0});  // reserved
  writer.Put(segment.range.layer);
  writer.Put(static_cast<uint64_t>(segment.range.indices.begin));
  writer.Put(static_cast<uint32_t>(segment.range.indices.size()));
  writer.Put(segment.bytes);
}

// What the checksum field must say: of a whole head but that field.
uint32_t HeadChecksum(std::span<const std::byte> head) {
  return kernels::Crc32c(head.subspan(kChecksumEnd), kernels::Crc32c(head.first(kChecksumAt)));
}

template <typename Got, typename Expected>
absl::Status Wrong(absl::string_view field, Got got, Expected expected) {
  return absl::DataLossError(
      absl::StrCat("frame field ", field, ": ", got, ", expected ", expected));
}

absl::Status CheckEnvelope(std::span<const std::byte> head, size_t frame_bytes) {
  if (head.size() < kFrameHeaderBytes) {
    return Wrong("size", head.size(), absl::StrCat("at least ", kFrameHeaderBytes));
  }
  Reader reader(head);
  if (const auto magic = reader.Get<uint32_t>(); magic != kMagic) {
    return Wrong("magic", absl::Hex(magic, absl::kZeroPad8), absl::Hex(kMagic, absl::kZeroPad8));
  }
  if (const auto version = reader.Get<uint16_t>(); version != kVersion) {
    return Wrong("version", version, kVersion);
  }
  reader.Get<uint16_t>();  // kind: under the checksum
  if (const auto bytes = reader.Get<uint32_t>(); bytes != frame_bytes) {
    return Wrong("frame_bytes", bytes, absl::StrCat(frame_bytes, " (the bytes that came)"));
  }
  const auto checksum = reader.Get<uint32_t>();
  if (const uint32_t actual = HeadChecksum(head); checksum != actual) {
    return Wrong("crc32c", absl::Hex(checksum, absl::kZeroPad8),
                 absl::Hex(actual, absl::kZeroPad8));
  }
  return absl::OkStatus();
}

struct Counts {
  uint32_t segments = 0;
  uint32_t payload_bytes = 0;
};

// Of a frame whose envelope is right: everything after the checksum field, and the kind.
absl::Status ReadHeader(std::span<const std::byte> head, DigestKind digest_kind, size_t frame_bytes,
                        FrameHeader* header, Counts* counts) {
  Reader reader(head.subspan(6));
  const auto kind = reader.Get<uint16_t>();
  header->kind = static_cast<FrameKind>(kind);
  reader.Get<uint64_t>();  // frame_bytes and checksum
  header->key.attempt.request.high = reader.Get<uint64_t>();
  header->key.attempt.request.low = reader.Get<uint64_t>();
  header->key.attempt.attempt = reader.Get<uint32_t>();
  counts->segments = reader.Get<uint32_t>();
  header->key.sender = reader.Get<uint64_t>();
  header->key.receiver = reader.Get<uint64_t>();
  header->sequence = reader.Get<uint64_t>();
  header->first_token = reader.Get<uint64_t>();
  header->tokens = reader.Get<uint64_t>();
  counts->payload_bytes = reader.Get<uint32_t>();
  const auto guarded_by = reader.Get<uint32_t>();

  if (header->kind != FrameKind::kProgress && header->kind != FrameKind::kTail) {
    return Wrong("kind", kind, "1 or 2");
  }
  if (counts->segments == 0 || counts->segments > kMaxSegments) {
    return Wrong("segment_count", counts->segments, absl::StrCat("1 to ", kMaxSegments));
  }
  if (guarded_by != static_cast<uint32_t>(digest_kind)) {
    return Wrong("digest_kind", guarded_by, static_cast<uint32_t>(digest_kind));
  }
  const uint64_t expected = uint64_t{HeadBytes(counts->segments)} + counts->payload_bytes;
  if (expected != frame_bytes) {
    return Wrong("frame_bytes", frame_bytes,
                 absl::StrCat(expected, " (head of ", counts->segments, " segments, ",
                              counts->payload_bytes, " payload bytes)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Segment> ReadSegment(std::span<const std::byte> entry, uint32_t number) {
  const auto wrong = [number](absl::string_view field, auto got, auto expected) {
    return Wrong(absl::StrCat("segment[", number, "].", field), got, expected);
  };
  Reader reader(entry);
  const auto stream = reader.Get<uint8_t>();
  const auto format = reader.Get<uint8_t>();
  const auto reserved = reader.Get<uint16_t>();
  Segment segment;
  segment.range.stream = static_cast<CacheStream>(stream);
  segment.format = static_cast<RecordFormat>(format);
  segment.range.layer = reader.Get<uint32_t>();
  const auto first = reader.Get<uint64_t>();
  const auto count = reader.Get<uint32_t>();
  segment.bytes = reader.Get<uint32_t>();
  if (stream < 1 || stream > kCacheStreamCount) {
    return wrong("stream", int{stream}, absl::StrCat("1 to ", kCacheStreamCount));
  }
  if (reserved != 0) return wrong("reserved", reserved, 0);
  if (count == 0) return wrong("count", count, "at least 1");
  constexpr uint64_t kMaxIndex = std::numeric_limits<int64_t>::max();
  if (first > kMaxIndex - count) return wrong("first_index", first, "less than 2^63 - count");
  if (segment.bytes == 0 || segment.bytes % count != 0) {
    return wrong("bytes", segment.bytes, absl::StrCat("a positive multiple of count ", count));
  }
  segment.range.indices = {static_cast<int64_t>(first), static_cast<int64_t>(first + count)};
  return segment;
}

}  // namespace

size_t FrameBytes(std::span<const Segment> segments) {
  return HeadBytes(segments.size()) + PayloadBytes(segments);
}

void EncodeHead(const FrameHeader& header, std::span<const Segment> segments, DigestKind kind,
                uint64_t digest, std::span<std::byte> head) {
  BATON_CHECK(!segments.empty() && segments.size() <= kMaxSegments) << segments.size();
  BATON_CHECK(head.size() == HeadBytes(segments.size())) << head.size();
  Writer writer(head.data());
  writer.Put(kMagic);
  writer.Put(kVersion);
  writer.Put(static_cast<uint16_t>(header.kind));
  writer.Put(static_cast<uint32_t>(FrameBytes(segments)));
  writer.Put(uint32_t{0});  // checksum, filled in last
  writer.Put(header.key.attempt.request.high);
  writer.Put(header.key.attempt.request.low);
  writer.Put(header.key.attempt.attempt);
  writer.Put(static_cast<uint32_t>(segments.size()));
  writer.Put(header.key.sender);
  writer.Put(header.key.receiver);
  writer.Put(header.sequence);
  writer.Put(header.first_token);
  writer.Put(header.tokens);
  writer.Put(PayloadBytes(segments));
  writer.Put(static_cast<uint32_t>(kind));
  size_t at = kFrameHeaderBytes;
  for (const Segment& segment : segments) {
    PutSegment(segment, head.data() + at);
    at += kSegmentBytes;
  }
  Writer(head.data() + at).Put(digest);
  const std::span<std::byte> padding = head.subspan(at + sizeof(digest));
  std::fill(padding.begin(), padding.end(), std::byte{0});
  Writer(head.data() + kChecksumAt).Put(HeadChecksum(head));
}

uint64_t PeekSequence(std::span<const std::byte> frame) {
  if (frame.size() < kFrameHeaderBytes) return 0;
  return Reader(frame.subspan(kSequenceAt)).Get<uint64_t>();
}

size_t PeekSegments(std::span<const std::byte> head) {
  if (head.size() < kFrameHeaderBytes) return 0;
  return std::min<size_t>(Reader(head.subspan(kSegmentCountAt)).Get<uint32_t>(), kMaxSegments);
}

absl::StatusOr<FrameView> DecodeHead(std::span<const std::byte> head,
                                     std::span<const std::byte> frame, DigestKind kind) {
  absl::Status status = CheckEnvelope(head, frame.size());
  if (!status.ok()) return status;
  FrameView view;
  Counts counts;
  status = ReadHeader(head, kind, frame.size(), &view.header, &counts);
  if (!status.ok()) return status;
  view.parts.reserve(counts.segments);
  // ReadHeader has shown that head and payload fill the frame exactly.
  std::span<const std::byte> payload = frame.subspan(HeadBytes(counts.segments));
  size_t at = kFrameHeaderBytes;
  for (uint32_t i = 0; i < counts.segments; ++i, at += kSegmentBytes) {
    absl::StatusOr<Segment> segment = ReadSegment(head.subspan(at, kSegmentBytes), i);
    if (!segment.ok()) return segment.status();
    if (segment->bytes > payload.size()) {
      return Wrong(absl::StrCat("segment[", i, "].bytes"), segment->bytes,
                   absl::StrCat("at most the ", payload.size(), " payload bytes that are left"));
    }
    view.parts.push_back({*segment, payload.first(segment->bytes)});
    payload = payload.subspan(segment->bytes);
  }
  if (!payload.empty()) {
    return Wrong("payload_bytes", counts.payload_bytes,
                 absl::StrCat(counts.payload_bytes - payload.size(), " (the sum over segments)"));
  }
  view.digest = Reader(head.subspan(at)).Get<uint64_t>();
  const auto padding = head.subspan(at + sizeof(view.digest));
  if (std::ranges::any_of(padding, [](std::byte byte) { return byte != std::byte{0}; })) {
    return Wrong("padding", "other bytes", "zeros");
  }
  return view;
}

}  // namespace baton::kvtransfer
