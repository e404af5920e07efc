// Any bytes as a frame of a hand-off: corrupt, or a frame that encodes to the same bytes. Then once
// more with an envelope and a key that fit an open attempt: whatever the rest says, only records of
// the grant are written, and each only once.

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <vector>

#include "common/base/check.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/handoff_records.h"
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
  void Gather(const RecordRange&, std::span<std::byte>) const override {
    BATON_CHECK(false) << "read";
  }
  void Scatter(const RecordRange& range, std::span<const std::byte> bytes) override {
    const StreamLayout* stream = Layout().Find(range.stream);
    BATON_CHECK(stream != nullptr && range.layer < stream->layers);
    const IndexRange reserved = HandoffRecords(range.stream, {.entries = kFirstToken}, kTokens);
    BATON_CHECK(range.indices.begin >= reserved.begin && range.indices.end <= reserved.end);
    BATON_CHECK(bytes.size() == stream->record_bytes * static_cast<size_t>(range.indices.size()));
    for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
      BATON_CHECK(written_.emplace(range.stream, range.layer, i).second) << "written twice";
    }
  }

 private:
  std::set<std::tuple<CacheStream, uint32_t, int64_t>> written_;
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
  size_t part = 0;
  EncodeFrame(
      view->header, segments,
      [&](const RecordRange&, std::span<std::byte> to) {
        std::ranges::copy(view->parts[part++].payload, to.begin());
      },
      again);
  BATON_CHECK(std::ranges::equal(again, frame));
}

template <typename T>
void Put(std::vector<std::byte>& frame, size_t at, T value) {
  std::memcpy(frame.data() + at, &value, sizeof(value));
}

// Offsets as in WIRE.md.
void MakeFit(std::vector<std::byte>& frame) {
  std::memcpy(frame.data(), "BKVF\1\0", 6);
  Put(frame, 8, static_cast<uint32_t>(frame.size()));
  Put(frame, 16, kKey.attempt.request.high);
  Put(frame, 24, kKey.attempt.request.low);
  Put(frame, 32, kKey.attempt.attempt);
  Put(frame, 40, kKey.sender);
  Put(frame, 48, kKey.receiver);
  Put(frame, 64, static_cast<uint64_t>(kFirstToken));
  const std::span<const std::byte> bytes(frame);
  Put(frame, 12, Crc32c(bytes.subspan(16), Crc32c(bytes.first(12))));
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
    receiver->OnFrame(bytes, &detail);
    if (size >= kFrameHeaderBytes) {
      std::vector<std::byte> frame(bytes.begin(), bytes.end());
      MakeFit(frame);
      CheckDecodesToItself(frame);
      for (int time = 0; time < 2; ++time) {
        const FrameVerdict verdict = receiver->OnFrame(frame, &detail);
        BATON_CHECK(verdict == FrameVerdict::kAccepted || !detail.empty());
      }
    }
  }
  callbacks.RunAll();
  BATON_CHECK(ends == 1) << ends;
  return 0;
}
