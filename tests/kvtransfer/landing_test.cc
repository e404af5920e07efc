#include "kvtransfer/landing.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_records.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::baton::testing::TinyLayout;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(IntervalSetTest, ReturnsWhatWasMissing) {
  IntervalSet set;
  EXPECT_THAT(set.Add({5, 5}), IsEmpty());
  EXPECT_THAT(set.Add({10, 20}), ElementsAre(IndexRange{10, 20}));
  EXPECT_THAT(set.Add({10, 20}), IsEmpty());
  EXPECT_THAT(set.Add({12, 18}), IsEmpty());
  EXPECT_THAT(set.Add({30, 40}), ElementsAre(IndexRange{30, 40}));
  EXPECT_THAT(set.Add({0, 50}),
              ElementsAre(IndexRange{0, 10}, IndexRange{20, 30}, IndexRange{40, 50}));
  EXPECT_THAT(set.ranges(), ElementsAre(IndexRange{0, 50}));
}

TEST(IntervalSetTest, JoinsNeighbours) {
  IntervalSet set;
  set.Add({0, 4});
  set.Add({8, 12});
  EXPECT_THAT(set.Add({4, 8}), ElementsAre(IndexRange{4, 8}));
  EXPECT_THAT(set.ranges(), ElementsAre(IndexRange{0, 12}));
  EXPECT_THAT(set.Add({12, 13}), ElementsAre(IndexRange{12, 13}));
  EXPECT_THAT(set.ranges(), ElementsAre(IndexRange{0, 13}));
}

TEST(IntervalSetTest, AgreesWithASetOfIndices) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 200; ++round) {
    IntervalSet intervals;
    std::set<int64_t> indices;
    for (int step = 0; step < 40; ++step) {
      const auto begin = static_cast<int64_t>(random() % 60);
      const IndexRange range{begin, begin + static_cast<int64_t>(random() % 12)};
      std::vector<int64_t> missing;
      for (const IndexRange& part : intervals.Add(range)) {
        for (int64_t i = part.begin; i < part.end; ++i) missing.push_back(i);
      }
      std::vector<int64_t> expected;
      for (int64_t i = range.begin; i < range.end; ++i) {
        if (indices.insert(i).second) expected.push_back(i);
      }
      ASSERT_EQ(missing, expected);
    }
    int64_t last = -1;
    size_t size = 0;
    for (const IndexRange& range : intervals.ranges()) {
      EXPECT_GT(range.begin, last);  // sorted, with a gap
      EXPECT_GT(range.size(), 0);
      last = range.end;
      size += static_cast<size_t>(range.size());
    }
    EXPECT_EQ(size, indices.size());
  }
}

const std::byte kBytes[4096] = {};

FrameView View(FrameKind kind, uint64_t tokens, std::vector<Segment> segments) {
  FrameView view;
  view.header.kind = kind;
  view.header.first_token = 256;
  view.header.tokens = tokens;
  for (const Segment& segment : segments) {
    view.parts.push_back({segment, std::span(kBytes).first(segment.bytes)});
  }
  return view;
}

Segment Csa(uint32_t layer, int64_t begin, int64_t end) {
  return {{CacheStream::kCsaKv, layer, {begin, end}},
          RecordFormat::kBf16,
          static_cast<uint32_t>(end - begin) * 8};
}

TEST(LandingTest, ClaimsEachRecordOnce) {
  Landing landing(TinyLayout(), {.entries = 256}, 600);
  const FrameView first = View(FrameKind::kProgress, 400, {Csa(0, 64, 80), Csa(1, 70, 74)});
  ASSERT_THAT(landing.Check(first), IsOk());
  EXPECT_EQ(landing.Claim(first).size(), 2u);
  EXPECT_THAT(landing.Claim(first), IsEmpty());
  const FrameView overlapping = View(FrameKind::kProgress, 400, {Csa(1, 68, 76)});
  const std::vector<Landing::Write> writes = landing.Claim(overlapping);
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(writes[0].range, (RecordRange{CacheStream::kCsaKv, 1, {68, 70}}));
  EXPECT_EQ(writes[0].bytes.data(), kBytes);
  EXPECT_EQ(writes[0].bytes.size(), 16u);
  EXPECT_EQ(writes[1].range, (RecordRange{CacheStream::kCsaKv, 1, {74, 76}}));
  EXPECT_EQ(writes[1].bytes.data(), kBytes + 48);
  EXPECT_FALSE(landing.complete());
}

TEST(LandingTest, IsCompleteWithTheLastRecordOfTheLastLayer) {
  const CacheLayout layout{{{CacheStream::kCsaKv, RecordFormat::kBf16, 2, 8}}};
  Landing landing(layout, {.entries = 256}, 600);  // records [64, 150)
  landing.Claim(View(FrameKind::kTail, 600, {Csa(0, 64, 150), Csa(1, 65, 150)}));
  EXPECT_FALSE(landing.complete());
  landing.Claim(View(FrameKind::kTail, 600, {Csa(1, 64, 65)}));
  EXPECT_TRUE(landing.complete());
}

TEST(LandingTest, ExpectsNothingWhenThereIsNothing) {
  EXPECT_TRUE(Landing(TinyLayout(), {}, 0).complete());
  EXPECT_TRUE(Landing(CacheLayout{}, {}, 1000).complete());
  EXPECT_FALSE(Landing(TinyLayout(), {.entries = 600}, 600).complete());  // the state is not there
  EXPECT_FALSE(Landing(TinyLayout(), {.entries = 600, .state = 599}, 600).complete());
  EXPECT_TRUE(Landing(TinyLayout(), {.entries = 600, .state = 600}, 600).complete());
}

TEST(LandingTest, RefusesWhatWasNotGrantedAndSaysWhat) {
  const Landing landing(TinyLayout(), {.entries = 256}, 600);
  struct Case {
    FrameView view;
    const char* complaint;
  };
  const Segment good = Csa(0, 64, 66);
  std::vector<Case> cases = {
      {View(FrameKind::kTail, 599, {good}), "tokens: 599, granted 600"},
      {View(FrameKind::kTail, 601, {good}), "tokens: 601, granted 600"},
      {View(FrameKind::kProgress, 601, {good}), "tokens: 601, granted 600"},
      {View(FrameKind::kTail, 600, {good, Csa(0, 63, 65)}),
       "csa_kv records: [63, 65), granted [64, 150)"},
      {View(FrameKind::kTail, 600, {Csa(0, 149, 151)}), "csa_kv records: [149, 151)"},
      {View(FrameKind::kTail, 600, {Csa(2, 64, 66)}), "csa_kv layer: 2, granted 0 to 1"},
      {View(FrameKind::kTail, 600, {{good.range, RecordFormat::kFp8Packed, 16}}),
       "csa_kv format: 3, granted 1"},
      {View(FrameKind::kTail, 600, {{good.range, RecordFormat::kBf16, 32}}),
       "csa_kv record bytes: 16, granted 8"},
      {View(FrameKind::kProgress, 600,
            {{{CacheStream::kWindowKv, 0, {590, 591}}, RecordFormat::kBf16, 4}}),
       "window_kv in a progress frame"},
      {View(FrameKind::kTail, 600,
            {{{CacheStream::kWindowKv, 0, {472, 474}}, RecordFormat::kBf16, 8}}),
       "window_kv records: [472, 474), granted [473, 600)"},
  };
  cases.push_back({cases[0].view, "first_token: 0, granted 256"});
  cases.back().view.header.first_token = 0;
  for (const Case& test : cases) {
    EXPECT_THAT(landing.Check(test.view),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(test.complaint)));
  }
  CacheLayout without_mtp = TinyLayout();
  std::erase_if(without_mtp.streams,
                [](const StreamLayout& s) { return s.stream == CacheStream::kMtpCarry; });
  const FrameView carry = View(
      FrameKind::kTail, 600, {{{CacheStream::kMtpCarry, 0, {599, 600}}, RecordFormat::kBf16, 32}});
  EXPECT_THAT(Landing(without_mtp, {.entries = 256}, 600).Check(carry),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("stream: mtp_carry")));
  EXPECT_THAT(landing.Check(carry), IsOk());
}

}  // namespace
}  // namespace baton::kvtransfer
