#include "kvtransfer/send_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::kvtransfer {

SendPlan::SendPlan(CacheLayout layout, const Held& held, int64_t send_tokens)
    : layout_(std::move(layout)),
      held_(held),
      send_tokens_(send_tokens),
      planned_tokens_(held.entries) {
  BATON_CHECK(held.valid() && send_tokens > 0) << held.entries << ", " << send_tokens;
}

absl::Status SendPlan::CheckLayout(const CacheLayout& layout, size_t frame_bytes) {
  for (const StreamLayout& stream : layout.streams) {
    const size_t needed = HeadBytes(1) + stream.record_bytes;
    if (stream.record_bytes == 0 || needed > frame_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout of ", std::string(CacheStreamName(stream.stream)), ": a record of ",
                       stream.record_bytes, " bytes does not fit frames of ", frame_bytes));
    }
  }
  return absl::OkStatus();
}

void SendPlan::Advance(int64_t tokens) {
  BATON_CHECK(!finished_) << "advance to " << tokens << " after finish";
  AddAppendOnly(tokens / send_tokens_ * send_tokens_);
  tokens_ = std::max(tokens_, tokens);
}

void SendPlan::Finish(int64_t tokens) {
  BATON_CHECK(!finished_) << "finished twice";
  BATON_CHECK(tokens >= tokens_ && tokens >= held_.entries) << tokens << " after " << tokens_;
  AddAppendOnly(tokens);
  for (const StreamLayout& stream : layout_.streams) {
    if (!IsAppendOnly(stream.stream)) {
      Add(stream, HandoffRecords(stream.stream, held_, tokens));
    }
  }
  tokens_ = tokens;
  finished_ = true;
}

void SendPlan::AddAppendOnly(int64_t tokens) {
  if (tokens <= planned_tokens_) return;
  for (const StreamLayout& stream : layout_.streams) {
    if (IsAppendOnly(stream.stream)) {
      Add(stream, HandoffRecords(stream.stream, {.entries = planned_tokens_}, tokens));
    }
  }
  planned_tokens_ = tokens;
}

void SendPlan::Add(const StreamLayout& stream, IndexRange indices) {
  if (indices.size() == 0) return;
  for (uint32_t layer = 0; layer < stream.layers; ++layer) {
    ready_.push_back({stream.stream, layer, indices});
  }
}

FramePlan SendPlan::NextFrame(size_t frame_bytes) {
  BATON_CHECK(has_frame());
  FramePlan plan;
  plan.kind = finished_ ? FrameKind::kTail : FrameKind::kProgress;
  plan.tokens = tokens_;
  size_t left = frame_bytes - (HeadBytes(1) - kSegmentBytes);
  while (!ready_.empty() && plan.segments.size() < kMaxSegments && left > kSegmentBytes) {
    RecordRange& range = ready_.front();
    const StreamLayout& stream = *layout_.Find(range.stream);
    const int64_t fit = static_cast<int64_t>((left - kSegmentBytes) / stream.record_bytes);
    const int64_t count = std::min(fit, range.indices.size());
    if (count == 0) break;
    const auto bytes = static_cast<uint32_t>(count * stream.record_bytes);
    const IndexRange indices{range.indices.begin, range.indices.begin + count};
    plan.segments.push_back({{range.stream, range.layer, indices}, stream.format, bytes});
    left -= kSegmentBytes + bytes;
    range.indices.begin += count;
    if (range.indices.size() == 0) ready_.pop_front();
  }
  BATON_CHECK(!plan.segments.empty()) << "CheckLayout was not asked";
  return plan;
}

}  // namespace baton::kvtransfer
