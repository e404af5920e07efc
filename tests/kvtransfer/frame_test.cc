#include <algorithm>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/crc32c.h"
#include "kvtransfer/host_frame.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

std::vector<std::byte> FromHex(std::string_view hex) {
  std::vector<std::byte> bytes;
  std::string digits;
  for (const char c : hex) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) continue;
    digits.push_back(c);
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<std::byte>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  return bytes;
}

// Computed by a program that shares no code with this one, from the tables of WIRE.md.
const char* const kGolden =
    "42 4b 56 46 02 00 02 00 bf 00 00 00 89 da 63 09"
    "08 07 06 05 04 03 02 01 18 17 16 15 14 13 12 11"
    "03 00 00 00 03 00 00 00 28 27 26 25 24 23 22 21"
    "38 37 36 35 34 33 32 31 07 00 00 00 00 00 00 00"
    "00 01 00 00 00 00 00 00 2d 01 00 00 00 00 00 00"
    "0f 00 00 00 02 00 00 00 01 01 00 00 02 00 00 00"
    "40 00 00 00 00 00 00 00 02 00 00 00 08 00 00 00"
    "0b 02 00 00 00 00 00 00 2c 01 00 00 00 00 00 00"
    "01 00 00 00 03 00 00 00 04 01 00 00 01 00 00 00"
    "2a 01 00 00 00 00 00 00 02 00 00 00 04 00 00 00"
    "90 d0 a3 01 00 00 00 00 00 00 00 00 00 00 00 00"
    "10 11 12 13 14 15 16 17 a0 a1 a2 50 51 52 53";

FrameHeader GoldenHeader() {
  return {.kind = FrameKind::kTail,
          .key = {.attempt = {.request = {0x0102030405060708, 0x1112131415161718}, .attempt = 3},
                  .sender = 0x2122232425262728,
                  .receiver = 0x3132333435363738},
          .sequence = 7,
          .first_token = 256,
          .tokens = 301};
}

std::vector<Segment> GoldenSegments() {
  return {{{CacheStream::kCsaKv, 2, {64, 66}}, RecordFormat::kBf16, 8},
          {{CacheStream::kMtpCarry, 0, {300, 301}}, RecordFormat::kF32, 3},
          {{CacheStream::kWindowKv, 1, {298, 300}}, RecordFormat::kBf16, 4}};
}

// Bytes that count up, from a number for each stream.
class GoldenRecords final : public SequenceRecords {
 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                    uint32_t crc) const override {
    const int first = range.stream == CacheStream::kCsaKv      ? 0x10
                      : range.stream == CacheStream::kMtpCarry ? 0xA0
                                                               : 0x50;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
    }
    return kernels::Crc32c(bytes, crc);
  }
  uint32_t DoScatter(const RecordRange&, std::span<const std::byte>, uint32_t) override {
    ADD_FAILURE() << "written";
    return 0;
  }
};

std::vector<std::byte> EncodeGolden() {
  std::vector<std::byte> buffer(200, std::byte{0x77});
  buffer.resize(EncodeFrame(GoldenHeader(), GoldenSegments(), GoldenRecords(), buffer));
  return buffer;
}

// Changes bytes and makes the checksum right again: what a faulty or hostile sender could send.
std::vector<std::byte> Forge(std::vector<std::byte> frame, size_t at, std::vector<int> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) frame[at + i] = static_cast<std::byte>(bytes[i]);
  const auto head = std::span<const std::byte>(frame).first(
      std::min(frame.size(), HeadBytes(PeekSegments(frame))));
  const uint32_t crc = kernels::Crc32c(head.subspan(16), kernels::Crc32c(head.first(12)));
  for (size_t i = 0; i < 4; ++i) frame[12 + i] = static_cast<std::byte>(crc >> (8 * i));
  return frame;
}

TEST(FrameTest, EncodesTheGoldenBuffer) { EXPECT_EQ(EncodeGolden(), FromHex(kGolden)); }

TEST(FrameTest, DecodesTheGoldenBuffer) {
  const std::vector<std::byte> frame = FromHex(kGolden);
  BATON_ASSERT_OK_AND_ASSIGN(const FrameView view, DecodeFrame(frame));
  const FrameHeader expected = GoldenHeader();
  EXPECT_EQ(view.header.kind, expected.kind);
  EXPECT_EQ(view.header.key, expected.key);
  EXPECT_EQ(view.header.sequence, expected.sequence);
  EXPECT_EQ(view.header.first_token, expected.first_token);
  EXPECT_EQ(view.header.tokens, expected.tokens);
  const std::vector<Segment> segments = GoldenSegments();
  ASSERT_EQ(view.parts.size(), segments.size());
  EXPECT_EQ(view.digest, kernels::Crc32c(std::span(frame).subspan(HeadBytes(3))));
  const std::byte* payload = frame.data() + HeadBytes(3);
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(view.parts[i].segment.range, segments[i].range);
    EXPECT_EQ(view.parts[i].segment.format, segments[i].format);
    EXPECT_EQ(view.parts[i].payload.size(), segments[i].bytes);
    EXPECT_EQ(view.parts[i].payload.data(), payload);
    payload += segments[i].bytes;
  }
}

TEST(FrameTest, PeeksTheSequenceOfAnyBytes) {
  std::vector<std::byte> frame = FromHex(kGolden);
  EXPECT_EQ(PeekSequence(frame), 7u);
  frame[100] ^= std::byte{1};
  EXPECT_EQ(PeekSequence(frame), 7u);
  EXPECT_EQ(PeekSequence(std::span(frame).first(87)), 0u);
  EXPECT_EQ(PeekSequence({}), 0u);
}

TEST(FrameTest, RefusesEveryTruncation) {
  const std::vector<std::byte> frame = FromHex(kGolden);
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_THAT(DecodeFrame(std::span(frame).first(size)),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(size < kFrameHeaderBytes ? "size" : "frame_bytes")))
        << size;
  }
}

TEST(FrameTest, RefusesTrailingBytes) {
  std::vector<std::byte> frame = FromHex(kGolden);
  frame.push_back(std::byte{0});
  EXPECT_THAT(DecodeFrame(frame), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("frame_bytes")));
}

TEST(FrameTest, NoticesEveryFlippedBit) {
  std::vector<std::byte> frame = FromHex(kGolden);
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    if (bit / 8 < HeadBytes(3)) {
      EXPECT_THAT(DecodeFrame(frame), StatusIs(absl::StatusCode::kDataLoss)) << "bit " << bit;
    } else {
      BATON_ASSERT_OK_AND_ASSIGN(const FrameView view, DecodeFrame(frame));
      EXPECT_NE(view.digest, kernels::Crc32c(std::span(frame).subspan(HeadBytes(3)))) << bit;
    }
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_THAT(DecodeFrame(frame), IsOk());
}

struct Forgery {
  const char* name;
  size_t at;
  std::vector<int> bytes;
  const char* complaint;
};

TEST(FrameTest, NamesTheFieldThatIsWrong) {
  const std::vector<Forgery> forgeries = {
      {"magic", 0, {0x43}, "magic: 46564b43, expected 46564b42"},
      {"version", 4, {1}, "version: 1, expected 2"},
      {"kind of none", 6, {0}, "kind: 0, expected 1 or 2"},
      {"kind of the future", 6, {3}, "kind: 3"},
      {"no segments", 36, {0}, "segment_count: 0, expected 1 to 4096"},
      {"too many segments", 36, {1, 16}, "segment_count: 4097"},
      {"hostile segment count", 36, {255, 255, 255, 255}, "segment_count: 4294967295"},
      {"more segments than bytes", 36, {4}, "frame_bytes: 191, expected 207"},
      {"payload bytes", 80, {16}, "frame_bytes: 191, expected 192"},
      {"hostile payload bytes", 80, {255, 255, 255, 255}, "frame_bytes: 191"},
      {"payload on a device", 84, {1}, "digest_kind: 1, expected 2"},
      {"stream zero", 88, {0}, "segment[0].stream: 0, expected 1 to 11"},
      {"stream unknown", 112, {12}, "segment[1].stream: 12"},
      {"segment reserved", 90, {1}, "segment[0].reserved: 1"},
      {"no records", 104, {0, 0, 0, 0}, "segment[0].count: 0"},
      {"index overflow", 96, {255, 255, 255, 255, 255, 255, 255, 127}, "segment[0].first_index"},
      {"index negative", 96, {0, 0, 0, 0, 0, 0, 0, 128}, "segment[0].first_index"},
      {"no bytes", 108, {0}, "segment[0].bytes: 0, expected a positive multiple of count 2"},
      {"odd bytes", 108, {7}, "segment[0].bytes: 7, expected a positive multiple of count 2"},
      {"too few bytes", 108, {6}, "payload_bytes: 15, expected 13 (the sum over segments)"},
      {"bytes of the next", 108, {14}, "segment[1].bytes: 3, expected at most the 1 payload"},
      {"hostile bytes", 108, {254, 255, 255, 255}, "segment[0].bytes: 4294967294"},
      {"padding", 170, {1}, "padding"},
  };
  for (const Forgery& forgery : forgeries) {
    EXPECT_THAT(DecodeFrame(Forge(FromHex(kGolden), forgery.at, forgery.bytes)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(forgery.complaint)))
        << forgery.name;
  }
}

TEST(FrameTest, SurvivesRandomBytesWithARightChecksum) {
  std::mt19937_64 random(3);
  const std::vector<std::byte> golden = FromHex(kGolden);
  int decoded = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> frame = golden;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int c = 0; c < changes; ++c) {
      // Past what must be right for the rest to be looked at.
      const size_t at = 16 + random() % (frame.size() - 16);
      frame = Forge(frame, at, {static_cast<int>(random() % 256)});
    }
    const auto view = DecodeFrame(frame);
    if (!view.ok()) continue;
    ++decoded;
    size_t payload = 0;
    for (const FrameView::Part& part : view->parts) {
      payload += part.payload.size();
      EXPECT_GE(part.payload.data(), frame.data());
      EXPECT_LE(part.payload.data() + part.payload.size(), frame.data() + frame.size());
      EXPECT_GT(part.segment.range.indices.size(), 0);
    }
    EXPECT_EQ(HeadBytes(view->parts.size()) + payload, frame.size());
  }
  EXPECT_GT(decoded, 1000);  // ids and payload may be anything
}

}  // namespace
}  // namespace baton::kvtransfer
