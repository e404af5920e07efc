#include "kvtransfer/landing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::kvtransfer {
namespace {

template <typename Got, typename Expected>
absl::Status NotGranted(absl::string_view what, Got got, Expected expected) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", got, ", granted ", expected));
}

std::string RangeText(IndexRange range) {
  return absl::StrCat("[", range.begin, ", ", range.end, ")");
}

}  // namespace

Landing::Landing(const CacheLayout& layout, const Held& held, int64_t tokens)
    : held_(held), tokens_(tokens) {
  for (const StreamLayout& stream : layout.streams) {
    const IndexRange expected = HandoffRecords(stream.stream, held, tokens);
    streams_.push_back({stream, expected, std::vector<IntervalSet>(stream.layers)});
    missing_records_ += expected.size() * stream.layers;
  }
}

const Landing::Stream* Landing::Find(CacheStream stream) const {
  const auto it = std::find_if(streams_.begin(), streams_.end(), [stream](const Stream& known) {
    return known.layout.stream == stream;
  });
  return it == streams_.end() ? nullptr : &*it;
}

absl::Status Landing::Check(const FrameView& frame) const {
  const FrameHeader& header = frame.header;
  if (header.first_token != static_cast<uint64_t>(held_.entries)) {
    return NotGranted("first_token", header.first_token, held_.entries);
  }
  const auto tokens = static_cast<uint64_t>(tokens_);
  if (header.kind == FrameKind::kTail ? header.tokens != tokens : header.tokens > tokens) {
    return NotGranted("tokens", header.tokens, tokens_);
  }
  for (const FrameView::Part& part : frame.parts) {
    if (absl::Status status = CheckSegment(part.segment, header.kind); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Landing::CheckSegment(const Segment& segment, FrameKind kind) const {
  const RecordRange& range = segment.range;
  const std::string name(CacheStreamName(range.stream));
  const Stream* stream = Find(range.stream);
  if (stream == nullptr) return NotGranted("stream", name, "none of this kind");
  if (kind == FrameKind::kProgress && !IsAppendOnly(range.stream)) {
    return NotGranted(absl::StrCat(name, " in a progress frame"), "state",
                      "append-only records until the prompt is computed");
  }
  if (segment.format != stream->layout.format) {
    return NotGranted(absl::StrCat(name, " format"), static_cast<int>(segment.format),
                      static_cast<int>(stream->layout.format));
  }
  if (range.layer >= stream->layout.layers) {
    return NotGranted(absl::StrCat(name, " layer"), range.layer,
                      absl::StrCat("0 to ", stream->layout.layers - 1));
  }
  if (range.indices.begin < stream->expected.begin || range.indices.end > stream->expected.end) {
    return NotGranted(absl::StrCat(name, " records"), RangeText(range.indices),
                      RangeText(stream->expected));
  }
  const int64_t record_bytes = segment.bytes / range.indices.size();
  if (record_bytes != stream->layout.record_bytes) {
    return NotGranted(absl::StrCat(name, " record bytes"), record_bytes,
                      stream->layout.record_bytes);
  }
  return absl::OkStatus();
}

std::vector<Landing::Write> Landing::Claim(const FrameView& frame) {
  std::vector<Write> writes;
  for (const FrameView::Part& part : frame.parts) {
    const RecordRange& range = part.segment.range;
    const Stream* found = Find(range.stream);
    BATON_CHECK(found != nullptr) << "the frame was not checked";
    Stream& stream = streams_[static_cast<size_t>(found - streams_.data())];
    const size_t record_bytes = stream.layout.record_bytes;
    for (const IndexRange& missing : stream.claimed[range.layer].Add(range.indices)) {
      const auto skip = static_cast<size_t>(missing.begin - range.indices.begin) * record_bytes;
      const auto bytes = static_cast<size_t>(missing.size()) * record_bytes;
      writes.push_back({{range.stream, range.layer, missing}, part.payload.subspan(skip, bytes)});
      missing_records_ -= missing.size();
    }
  }
  return writes;
}

void Landing::GiveBack(std::span<const Write> writes) {
  for (const Write& write : writes) {
    const Stream* found = Find(write.range.stream);
    BATON_CHECK(found != nullptr) << "nothing of this kind was claimed";
    Stream& stream = streams_[static_cast<size_t>(found - streams_.data())];
    stream.claimed[write.range.layer].Remove(write.range.indices);
    missing_records_ += write.range.indices.size();
  }
}

}  // namespace baton::kvtransfer
