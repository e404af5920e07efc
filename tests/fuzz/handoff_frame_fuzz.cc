// Any bytes as a frame of a hand-off: corrupt, or a frame that encodes to the same bytes. Then once
// more with an envelope and a key that fit an open attempt: whatever the rest says, only records of
// the grant are written, and none again once its frame has been accepted.

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <vector>

#include "common/base/check.h"
#include "kernels/crc32c.h"
#include "kvtransfer/handoff_records.h"
#include "kvtransfer/host_frame.h"
#include "kvtransfer/receiver.h"
#include "tests/testing/manual_executor.h"

using namespace baton;              // NOLINT(google-build-using-namespace)
using namespace baton::kvtransfer;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int64_t kFirstToken = 256;
constexpr int64_t kTokens = 300;
constexpr HandoffKey kKey = {
    .attempt = {.request = {1, 2}, .attempt = 3}, .sender = 4, .receiver = 5};

const CacheLayout& Layout() {
  static const CacheLayout layout = {{{CacheStream::kCsaKv, RecordFormat::kBf16, 2, 8},
                                      {CacheStream::kWindowKv, RecordFormat::kBf16, 2, 4},
                                      {CacheStream::kHcaState, RecordFormat::kF32, 1, 8}}};
  return layout;
}

class Reservation final : public SequenceRecords {
 public:
  // What has been written is there.
  void Accept() { accepted_.merge(written_); }
  // It is missing again.
  void Forget() { written_.clear(); }

 private:
  uint32_t DoGather(const RecordRange&, std::span<std::byte>, uint32_t crc) const override {
    BATON_CHECK(false) << "read";
    return crc;
  }
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                     uint32_t crc) override {
    const StreamLayout* stream = Layout().Find(range.stream);
    BATON_CHECK(stream != nullptr && range.layer < stream->layers);
    const IndexRange reserved = HandoffRecords(range.stream, {.entries = kFirstToken}, kTokens);
    BATON_CHECK(range.indices.begin >= reserved.begin && range.indices.end <= reserved.end);
    BATON_CHECK(bytes.size() == stream->record_bytes * static_cast<size_t>(range.indices.size()));
    for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
      BATON_CHECK(!accepted_.contains({range.stream, range.layer, i})) << "written again";
      BATON_CHECK(written_.emplace(range.stream, range.layer, i).second) << "written twice";
    }
    return kernels::Crc32c(bytes, crc);
  }

  std::set<std::tuple<CacheStream, uint32_t, int64_t>> accepted_;
  std::set<std::tuple<CacheStream, uint32_t, int64_t>> written_;
};

// Gathers the parts of a frame one after another.
class PartsOf final : public SequenceRecords {
 public:
  explicit PartsOf(const FrameView& view) : view_(view) {}

 private:
  uint32_t DoGather(const RecordRange&, std::span<std::byte> bytes, uint32_t crc) const override {
    std::ranges::copy(view_.parts[next_++].payload, bytes.begin());
    return kernels::Crc32c(bytes, crc);
  }
  uint32_t DoScatter(const RecordRange&, std::span<const std::byte>, uint32_t crc) override {
    BATON_CHECK(false) << "written";
    return crc;
  }

  const FrameView& view_;
  mutable size_t next_ = 0;
};

void CheckDecodesToItself(std::span<const std::byte> frame) {
  const absl::StatusOr<FrameView> view = DecodeFrame(frame);
  if (!view.ok()) {
    BATON_CHECK(absl::IsDataLoss(view.status())) << view.status();
    return;
  }
  std::vector<Segment> segments;
  for (const FrameView::Part& part : view->parts) segments.push_back(part.segment);
  std::vector<std::byte> again(FrameBytes(segments));
  EncodeFrame(view->header, segments, PartsOf(*view), again);
  if (kernels::Crc32c(frame.subspan(HeadBytes(segments.size()))) != view->digest) return;
  BATON_CHECK(std::ranges::equal(again, frame));
}

template <typename T>
void Put(std::vector<std::byte>& frame, size_t at, T value) {
  std::memcpy(frame.data() + at, &value, sizeof(value));
}

// Offsets as in WIRE.md.
void MakeFit(std::vector<std::byte>& frame) {
  std::memcpy(frame.data(), "BKVF\2\0", 6);
  Put(frame, 8, static_cast<uint32_t>(frame.size()));
  Put(frame, 16, kKey.attempt.request.high);
  Put(frame, 24, kKey.attempt.request.low);
  Put(frame, 32, kKey.attempt.attempt);
  Put(frame, 40, kKey.sender);
  Put(frame, 48, kKey.receiver);
  Put(frame, 64, static_cast<uint64_t>(kFirstToken));
  Put(frame, 84, static_cast<uint32_t>(DigestKind::kCrc32c));
  const size_t segments = PeekSegments(frame);
  const std::span<const std::byte> bytes(frame);
  const auto head = bytes.first(std::min(bytes.size(), HeadBytes(segments)));
  const size_t digest_at = kFrameHeaderBytes + segments * kSegmentBytes;
  if (digest_at + sizeof(uint64_t) <= head.size()) {
    Put(frame, digest_at, uint64_t{kernels::Crc32c(bytes.subspan(head.size()))});
  }
  Put(frame, 12, kernels::Crc32c(head.subspan(16), kernels::Crc32c(head.first(12))));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  CheckDecodesToItself(bytes);

  baton::testing::ManualExecutor callbacks;
  Reservation records;
  int ends = 0;
  {
    const std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
    const absl::Status expected =
        receiver->Expect({.key = kKey,
                          .records = &records,
                          .layout = Layout(),
                          .held = {.entries = kFirstToken},
                          .tokens = kTokens,
                          .on_end = [&](const absl::Status&) { ++ends; }});
    BATON_CHECK(expected.ok()) << expected;
    std::string detail;
    const auto deliver = [&](std::span<const std::byte> frame) {
      const FrameVerdict verdict = receiver->OnFrame(frame, &detail);
      BATON_CHECK(verdict == FrameVerdict::kAccepted || !detail.empty());
      verdict == FrameVerdict::kAccepted ? records.Accept() : records.Forget();
    };
    deliver(bytes);
    if (size >= kFrameHeaderBytes) {
      std::vector<std::byte> frame(bytes.begin(), bytes.end());
      MakeFit(frame);
      CheckDecodesToItself(frame);
      for (int time = 0; time < 2; ++time) deliver(frame);
    }
  }
  callbacks.RunAll();
  BATON_CHECK(ends == 1) << ends;
  return 0;
}
