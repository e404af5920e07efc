#include "engine/parallel/frame.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kPositions = 8192;

std::vector<std::byte> Whole(const Frame& frame) {
  std::vector<std::byte> bytes = EncodeHeader(frame, frame.payload.size());
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  return bytes;
}

TEST(FrameTest, HeadersAreTheseBytes) {
  const FrameHeader header =
      EncodeHeader({.type = FrameType::kRows, .from = 2, .to = 5, .number = 0x0102}, 0x304);
  std::vector<int> bytes;
  for (const std::byte byte : header) bytes.push_back(std::to_integer<int>(byte));
  EXPECT_THAT(bytes, ElementsAre('B', 'E', 'P', 'G', 7, 2, 5, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0,
                                 0, 0, 0, 0));
}

TEST(FrameTest, ComeBackFromPiecesOfAnySize) {
  const Step sent{
      .kind = PassKind::kDraft, .rows = {3, 0, 12}, .sequence_rows = 2, .positions = 4096};
  std::vector<std::byte> stream = Whole({.type = FrameType::kPulse, .from = 1});
  const std::vector<std::byte> second =
      Whole({.type = FrameType::kStep, .number = 9, .payload = EncodePass(sent)});
  stream.insert(stream.end(), second.begin(), second.end());
  for (const size_t piece : {size_t{1}, size_t{7}, stream.size()}) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (size_t done = 0; done < stream.size(); done += piece) {
      reader.Append(std::span(stream).subspan(done, std::min(piece, stream.size() - done)));
      while (std::optional<Frame> frame = *reader.Next()) frames.push_back(*std::move(frame));
    }
    ASSERT_EQ(frames.size(), 2u);
    EXPECT_EQ(frames[0].type, FrameType::kPulse);
    EXPECT_EQ(frames[0].from, 1);
    EXPECT_EQ(frames[1].number, 9u);
    const Step step = *DecodePass(frames[1].payload, 3, kPositions);
    EXPECT_EQ(step.kind, PassKind::kDraft);
    EXPECT_THAT(step.rows, ElementsAre(3, 0, 12));
    EXPECT_EQ(step.sequence_rows, 2);
    EXPECT_EQ(step.positions, 4096);
  }
}

TEST(FrameTest, RefusesWhatIsNone) {
  std::vector<std::byte> bytes = Whole({.type = FrameType::kPulse});
  bytes[0] = std::byte{'G'};  // as in GET /
  FrameReader reader;
  reader.Append(bytes);
  EXPECT_THAT(reader.Next().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not speak")));
  EXPECT_THAT(DecodePass(EncodePass(Step{}), 2, kPositions).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("17 bytes")));
}

TEST(FrameTest, RowsOfAPassAreThoseOfOne) {
  const auto decoded = [](int64_t rows, int64_t sequence_rows) {
    const Step step{.rows = {1, rows}, .sequence_rows = sequence_rows};
    return DecodePass(EncodePass(step), 2, kPositions).status();
  };
  const auto names = [](int64_t rows) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::to_string(rows) + " rows"));
  };
  for (const int64_t sequence_rows : {0, 1}) {
    const int64_t most = sequence_rows > 0 ? Wish::kMaxStepRows : Wish::kMaxRows;
    EXPECT_THAT(decoded(Wish::kResting, sequence_rows), IsOk());
    EXPECT_THAT(decoded(most, sequence_rows), IsOk());
    for (const int64_t rows : {Wish::kResting - 1, most + 1}) {
      EXPECT_THAT(decoded(rows, sequence_rows), names(rows));
    }
  }
}

TEST(FrameTest, SequencesOfAPassAreThoseOfTheModel) {
  const auto decoded = [](int64_t sequence_rows, int64_t positions) {
    const Step step{.rows = {0}, .sequence_rows = sequence_rows, .positions = positions};
    return DecodePass(EncodePass(step), 1, kPositions).status();
  };
  EXPECT_THAT(decoded(Wish::kMaxSequenceRows, kPositions), IsOk());
  for (const int64_t rows : {int64_t{-1}, Wish::kMaxSequenceRows + 1}) {
    EXPECT_THAT(decoded(rows, 1), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr(std::to_string(rows) + " rows and 1")));
  }
  for (const int64_t positions : {int64_t{-1}, kPositions + 1, INT64_MAX}) {
    EXPECT_THAT(decoded(1, positions),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::to_string(positions) + " positions")));
  }
}

TEST(FrameTest, StrangersNameNoLargePayload) {
  FrameReader reader;
  reader.Append(EncodeHeader({.type = FrameType::kHello}, Frame::kMaxGreeting + 1));
  EXPECT_THAT(reader.Next().status(), StatusIs(absl::StatusCode::kInvalidArgument));
  FrameReader trusting;
  trusting.Trust();
  trusting.Append(EncodeHeader({.type = FrameType::kRows}, Frame::kMaxPayload));
  EXPECT_FALSE(trusting.Next()->has_value());  // to come
}

TEST(FrameTest, FactsKeepTheirOrderAndEqualsSigns) {
  const Facts facts = {{"model", "ab=c"}, {"device", ""}};
  EXPECT_EQ(DecodeFacts(EncodeFacts(facts)), facts);
}

}  // namespace
}  // namespace baton::engine
