#include "kvtransfer/device_frame.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

// A frame of the entries [begin, end) of both layers in staging memory.
class DeviceFrameTest : public ::testing::Test {
 protected:
  DeviceFrameTest() {
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
    const size_t bytes = EncodeDeviceFrame(header, segments, source_, *mover_, staging_);
    EXPECT_EQ(bytes, DeviceFrameBytes(segments));
    return std::span(staging_).first(bytes);
  }
  FrameVerdict Deliver(std::span<const std::byte> frame) {
    return receiver_->OnDeviceFrame(frame, *mover_, &detail_);
  }

  struct Inline final : Executor {
    void Run(std::function<void()> task) override { task(); }
  };
  Inline callbacks_;
  const std::unique_ptr<RecordMover> mover_ = MakeHostMover();
  testing::PatternSource source_{OneStream(), kSeed};
  testing::RecordSink sink_{OneStream(), 0, 0, kTokens};
  std::vector<absl::Status> ended_;
  const std::unique_ptr<Receiver> receiver_ = MakeReceiver(&callbacks_);
  alignas(16) std::array<std::byte, 8192> staging_{};
  uint64_t sequence_ = 0;
  std::string detail_;
};

TEST_F(DeviceFrameTest, HeadAndPayloadLieWhereTheWireSays) {
  const std::span<std::byte> frame = Encode(10, 20);
  EXPECT_EQ(DeviceHeadBytes(2), 144u);
  EXPECT_EQ(frame.size(), 144u + 160);
  EXPECT_EQ(frame[84], std::byte{1});  // digest kMulSum64
  std::array<std::byte, 160> payload;
  source_.Gather({CacheStream::kCsaKv, 0, {10, 20}}, std::span(payload).first(80));
  source_.Gather({CacheStream::kCsaKv, 1, {10, 20}}, std::span(payload).subspan(80));
  EXPECT_EQ(std::memcmp(frame.data() + 144, payload.data(), payload.size()), 0);
  BATON_ASSERT_OK_AND_ASSIGN(const FrameView view, DecodeDeviceFrame(frame, *mover_));
  EXPECT_EQ(view.header.key, kKey);
  ASSERT_EQ(view.parts.size(), 2u);
  EXPECT_EQ(view.parts[1].payload.data(), frame.data() + 144 + 80);
}

TEST_F(DeviceFrameTest, EveryByteArrivesInAnyOrderAndTwice) {
  for (const auto& [begin, end] : {std::pair(40, 75), {40, 75}, {0, 40}}) {
    EXPECT_EQ(Deliver(Encode(begin, end)), FrameVerdict::kAccepted) << detail_;
  }
  EXPECT_EQ(sink_.Problem(kSeed), "");
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0], IsOk());
}

TEST_F(DeviceFrameTest, WhatIsThereAlreadyCountsForTheDigest) {
  EXPECT_EQ(Deliver(Encode(10, 50)), FrameVerdict::kAccepted) << detail_;
  EXPECT_EQ(Deliver(Encode(0, 75)), FrameVerdict::kAccepted) << detail_;
  EXPECT_EQ(sink_.Problem(kSeed), "");
}

TEST_F(DeviceFrameTest, EveryFlippedBitIsNoticedAndTheRecordsAreMissingAgain) {
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

TEST_F(DeviceFrameTest, SizesThatAreWrongAreNamed) {
  const std::span<std::byte> frame = Encode(0, 75);
  EXPECT_THAT(DecodeDeviceFrame(frame.first(50), *mover_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("size")));
  EXPECT_THAT(DecodeDeviceFrame(frame.first(frame.size() - 4), *mover_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("frame_bytes")));
  EXPECT_THAT(DecodeFrame(frame), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace baton::kvtransfer
