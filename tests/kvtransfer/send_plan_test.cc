#include "kvtransfer/send_plan.h"

#include <map>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/handoff_records.h"
#include "tests/testing/fake_records.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::FlashLayout;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::baton::testing::TinyLayout;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kUnit = 256;

using Record = std::tuple<CacheStream, uint32_t, int64_t>;

// Takes all ready frames; counts how often each record is in one.
void Drain(SendPlan& plan, size_t frame_bytes, std::map<Record, int>* records,
           std::vector<FramePlan>* frames = nullptr) {
  while (plan.has_frame()) {
    FramePlan frame = plan.NextFrame(frame_bytes);
    EXPECT_LE(FrameBytes(frame.segments), frame_bytes);
    for (const Segment& segment : frame.segments) {
      for (int64_t i = segment.range.indices.begin; i < segment.range.indices.end; ++i) {
        ++(*records)[{segment.range.stream, segment.range.layer, i}];
      }
    }
    if (frames != nullptr) frames->push_back(std::move(frame));
  }
}

std::map<Record, int> Expected(const CacheLayout& layout, const Held& held, int64_t tokens) {
  std::map<Record, int> records;
  for (const StreamLayout& stream : layout.streams) {
    const IndexRange range = HandoffRecords(stream.stream, held, tokens);
    for (uint32_t layer = 0; layer < stream.layers; ++layer) {
      for (int64_t i = range.begin; i < range.end; ++i) records[{stream.stream, layer, i}] = 1;
    }
  }
  return records;
}

TEST(SendPlanTest, SendsEveryRecordOnceAtEveryLengthNearTheEdges) {
  for (const int64_t tokens :
       {0,   1,   2,   3,   4,   5,   7,   8,   126, 127, 128,  129,  130,  131,
        255, 256, 257, 258, 259, 383, 384, 511, 512, 513, 1000, 1023, 1024, 1025}) {
    SendPlan plan(TinyLayout(), {}, kUnit);
    std::map<Record, int> records;
    for (int64_t done = 100; done < tokens; done += 100) {
      plan.Advance(done);
      Drain(plan, 300, &records);
    }
    plan.Finish(tokens);
    Drain(plan, 300, &records);
    EXPECT_TRUE(plan.complete());
    EXPECT_EQ(records, Expected(TinyLayout(), {}, tokens)) << tokens << " tokens";
  }
}

TEST(SendPlanTest, LeavesOutWhatTheReceiverHasAlready) {
  for (const Held& held :
       {Held{0, 0}, Held{4, 0}, Held{100, 100}, Held{128, 3}, Held{256, 0}, Held{512, 512},
        Held{640, 600}, Held{697, 697}, Held{699, 699}, Held{700, 0}, Held{700, 700}}) {
    SendPlan plan(TinyLayout(), held, kUnit);
    std::map<Record, int> records;
    plan.Advance(300);  // below what is held for some: nothing is ready then
    Drain(plan, 300, &records);
    plan.Finish(700);
    Drain(plan, 300, &records);
    EXPECT_EQ(records, Expected(TinyLayout(), held, 700)) << held.entries << ", " << held.state;
  }
}

TEST(SendPlanTest, SendsWholeUnitsWhileThePromptIsComputed) {
  SendPlan plan(FlashLayout(), {}, kUnit);
  plan.Advance(255);
  EXPECT_FALSE(plan.has_frame());
  plan.Advance(300);
  ASSERT_TRUE(plan.has_frame());
  std::map<Record, int> records;
  std::vector<FramePlan> frames;
  Drain(plan, size_t{2} << 20, &records, &frames);
  for (const FramePlan& frame : frames) {
    EXPECT_EQ(frame.kind, FrameKind::kProgress);
    EXPECT_EQ(frame.tokens, 300);
  }
  for (const auto& [record, count] : records) {
    EXPECT_TRUE(IsAppendOnly(std::get<0>(record)));
    EXPECT_LT(std::get<2>(record), LiveRecords(std::get<0>(record), 256).end);
  }
  EXPECT_EQ(records.size(), 21u * 64 + 21 * 64 + 20 * 2);
  EXPECT_FALSE(plan.complete());
}

TEST(SendPlanTest, PacksSmallRecordsOfManyLayersIntoOneFrame) {
  SendPlan plan(FlashLayout(), {}, kUnit);
  plan.Advance(256);
  const FramePlan frame = plan.NextFrame(size_t{2} << 20);
  EXPECT_EQ(frame.segments.size(), 62u);  // 21 + 21 + 20 layers: 1.76 MB in all
  EXPECT_FALSE(plan.has_frame());
}

TEST(SendPlanTest, FillsFramesUpToTheLimit) {
  SendPlan plan(FlashLayout(), {}, kUnit);
  std::map<Record, int> records;
  std::vector<FramePlan> frames;
  plan.Finish(8192);
  const size_t limit = size_t{2} << 20;
  Drain(plan, limit, &records, &frames);
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    EXPECT_GT(FrameBytes(frames[i].segments), limit - 32768 - kSegmentBytes);  // the largest record
    EXPECT_EQ(frames[i].kind, FrameKind::kTail);
    EXPECT_EQ(frames[i].tokens, 8192);
  }
}

TEST(SendPlanTest, RepeatedAndSmallerAdvancesChangeNothing) {
  SendPlan plan(TinyLayout(), {}, kUnit);
  std::map<Record, int> records;
  plan.Advance(512);
  Drain(plan, 300, &records);
  plan.Advance(512);
  plan.Advance(256);
  EXPECT_FALSE(plan.has_frame());
}

TEST(SendPlanTest, RefusesLayoutsWhoseRecordsDoNotFitAFrame) {
  const size_t needed = HeadBytes(1) + 32768;
  EXPECT_THAT(SendPlan::CheckLayout(FlashLayout(), needed), IsOk());
  EXPECT_THAT(SendPlan::CheckLayout(FlashLayout(), needed - 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("mtp_carry"), HasSubstr("32768"))));
  CacheLayout empty = TinyLayout();
  empty.streams[0].record_bytes = 0;
  EXPECT_THAT(SendPlan::CheckLayout(empty, needed),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("csa_kv")));
}

}  // namespace
}  // namespace baton::kvtransfer
