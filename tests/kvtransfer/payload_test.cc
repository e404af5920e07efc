#include <array>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/device_frame.h"
#include "kvtransfer/host_frame.h"
#include "kvtransfer/receiver.h"
#include "tests/testing/fake_records.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr HandoffKey kKey = {
    .attempt = {.request = {1, 2}, .attempt = 3}, .sender = 4, .receiver = 5};
constexpr int64_t kTokens = 300;
constexpr uint64_t kSeed = 9;

CacheLayout OneStream() { return {{{CacheStream::kCsaKv, RecordFormat::kBf16, 2, 8}}}; }

// A frame of the entries [begin, end) of both layers, in main memory or on what stands for a
// device.
class PayloadTest : public ::testing::TestWithParam<DigestKind> {
 protected:
  PayloadTest() {
    source_.Finish(kTokens);
    LandingSpec spec;
    spec.key = kKey;
    spec.records = &sink_;
    spec.layout = OneStream();
    spec.tokens = kTokens;
    spec.on_end = [this](absl::Status status) { ended_.push_back(std::move(status)); };
    EXPECT_THAT(receiver_->Expect(std::move(spec)), IsOk());
  }

  std::span<std::byte> Encode(int64_t begin, int64_t end) {
    std::vector<Segment> segments;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      segments.push_back({{CacheStream::kCsaKv, layer, {begin, end}},
                          RecordFormat::kBf16,
                          static_cast<uint32_t>(8 * (end - begin))});
    }
    const FrameHeader header = {
        .kind = FrameKind::kTail, .key = kKey, .sequence = ++sequence_, .tokens = kTokens};
    const size_t bytes = on_device()
                             ? EncodeDeviceFrame(header, segments, source_, *mover_, memory_)
                             : EncodeFrame(header, segments, source_, memory_);
    EXPECT_EQ(bytes, FrameBytes(segments));
    return std::span(memory_).first(bytes);
  }
  absl::StatusOr<FrameView> Decode(std::span<const std::byte> frame) {
    return on_device() ? DecodeDeviceFrame(frame, *mover_) : DecodeFrame(frame);
  }
  FrameVerdict Deliver(std::span<const std::byte> frame) {
    return on_device() ? receiver_->OnDeviceFrame(frame, *mover_, &detail_)
                       : receiver_->OnFrame(frame, &detail_);
  }
  static bool on_device() { return GetParam() == DigestKind::kMulSum64; }

  struct Inline final : Executor {
    void Run(std::function<void()> task) override { task(); }
  };
  Inline callbacks_;
  const std::unique_ptr<RecordMover> mover_ = MakeHostMover();
  testing::PatternSource source_{OneStream(), kSeed};
  testing::RecordSink sink_{OneStream(), 0, 0, kTokens};
  std::vector<absl::Status> ended_;
  const std::unique_ptr<Receiver> receiver_ = MakeReceiver(&callbacks_);
  alignas(kPayloadAlignment) std::array<std::byte, 8192> memory_{};
  uint64_t sequence_ = 0;
  std::string detail_;
};

TEST_P(PayloadTest, HeadAndPayloadLieWhereTheWireSays) {
  const std::span<std::byte> frame = Encode(10, 20);
  EXPECT_EQ(HeadBytes(2), 144u);
  EXPECT_EQ(frame.size(), 144u + 160);
  EXPECT_EQ(frame[84], static_cast<std::byte>(GetParam()));
  std::array<std::byte, 160> payload;
  source_.Gather({CacheStream::kCsaKv, 0, {10, 20}}, std::span(payload).first(80));
  source_.Gather({CacheStream::kCsaKv, 1, {10, 20}}, std::span(payload).subspan(80));
  EXPECT_EQ(std::memcmp(frame.data() + 144, payload.data(), payload.size()), 0);
  BATON_ASSERT_OK_AND_ASSIGN(const FrameView view, Decode(frame));
  EXPECT_EQ(view.header.key, kKey);
  ASSERT_EQ(view.parts.size(), 2u);
  EXPECT_EQ(view.parts[1].payload.data(), frame.data() + 144 + 80);
}

TEST_P(PayloadTest, EveryByteArrivesInAnyOrderAndTwice) {
  for (const auto& [begin, end] : {std::pair(40, 75), {40, 75}, {0, 40}}) {
    EXPECT_EQ(Deliver(Encode(begin, end)), FrameVerdict::kAccepted) << detail_;
  }
  EXPECT_EQ(sink_.Problem(kSeed), "");
  EXPECT_EQ(sink_.writes(), sink_.records());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0], IsOk());
}

TEST_P(PayloadTest, WhatIsThereAlreadyCountsForTheDigest) {
  EXPECT_EQ(Deliver(Encode(10, 50)), FrameVerdict::kAccepted) << detail_;
  EXPECT_EQ(Deliver(Encode(0, 75)), FrameVerdict::kAccepted) << detail_;
  EXPECT_EQ(sink_.Problem(kSeed), "");
}

TEST_P(PayloadTest, EveryFlippedBitIsNoticedAndTheRecordsAreMissingAgain) {
  const std::span<std::byte> frame = Encode(0, 75);
  for (size_t bit = 0; bit < frame.size() * 8; bit += 3) {
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(Deliver(frame), FrameVerdict::kCorrupt) << "bit " << bit << ": " << detail_;
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(receiver_->received_bytes(kKey.attempt), 0);
  EXPECT_EQ(Deliver(frame), FrameVerdict::kAccepted);
  EXPECT_EQ(sink_.Problem(kSeed), "");
  EXPECT_EQ(ended_.size(), 1u);
}

TEST_P(PayloadTest, SizesThatAreWrongAreNamed) {
  const std::span<std::byte> frame = Encode(0, 75);
  EXPECT_THAT(Decode(frame.first(50)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("size")));
  EXPECT_THAT(Decode(frame.first(frame.size() - 4)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("frame_bytes")));
}

TEST_P(PayloadTest, AFrameOfTheOtherKindIsRefused) {
  const std::span<std::byte> frame = Encode(0, 75);
  EXPECT_THAT(on_device() ? DecodeFrame(frame) : DecodeDeviceFrame(frame, *mover_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("digest_kind")));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PayloadTest,
                         ::testing::Values(DigestKind::kCrc32c, DigestKind::kMulSum64),
                         [](const auto& info) {
                           return info.param == DigestKind::kCrc32c ? "MainMemory" : "Device";
                         });

}  // namespace
}  // namespace baton::kvtransfer
