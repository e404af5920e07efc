#include "common/cache_layout.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr CacheStream kAll[] = {
    CacheStream::kCsaKv,    CacheStream::kIndexKey,          CacheStream::kHcaKv,
    CacheStream::kWindowKv, CacheStream::kMtpWindowKv,       CacheStream::kCsaOverlapState,
    CacheStream::kCsaState, CacheStream::kIndexOverlapState, CacheStream::kIndexState,
    CacheStream::kHcaState, CacheStream::kMtpCarry};

TEST(LiveRecordsTest, NothingIsLiveBeforeTheFirstToken) {
  for (const CacheStream stream : kAll) {
    EXPECT_EQ(LiveRecords(stream, 0).size(), 0) << CacheStreamName(stream);
  }
}

TEST(LiveRecordsTest, CompressedStreamsHoldTheClosedEntries) {
  for (const auto& [tokens, csa, hca] :
       {std::tuple{3, 0, 0}, {4, 1, 0}, {7, 1, 0}, {127, 31, 0}, {128, 32, 1}, {1000, 250, 7}}) {
    EXPECT_EQ(LiveRecords(CacheStream::kCsaKv, tokens), (IndexRange{0, csa})) << tokens;
    EXPECT_EQ(LiveRecords(CacheStream::kIndexKey, tokens), (IndexRange{0, csa})) << tokens;
    EXPECT_EQ(LiveRecords(CacheStream::kHcaKv, tokens), (IndexRange{0, hca})) << tokens;
  }
}

TEST(LiveRecordsTest, WindowRowsAreTheLast127) {
  EXPECT_EQ(LiveRecords(CacheStream::kWindowKv, 1), (IndexRange{0, 1}));
  EXPECT_EQ(LiveRecords(CacheStream::kWindowKv, 127), (IndexRange{0, 127}));
  EXPECT_EQ(LiveRecords(CacheStream::kWindowKv, 128), (IndexRange{1, 128}));
  EXPECT_EQ(LiveRecords(CacheStream::kMtpWindowKv, 1), (IndexRange{0, 0}));
  EXPECT_EQ(LiveRecords(CacheStream::kMtpWindowKv, 200), (IndexRange{72, 199}));
}

TEST(LiveRecordsTest, CompressorStateIsTheOpenGroupAndForCsaTheOneBefore) {
  EXPECT_EQ(LiveRecords(CacheStream::kCsaState, 8).size(), 0);
  EXPECT_EQ(LiveRecords(CacheStream::kCsaState, 10), (IndexRange{8, 10}));
  EXPECT_EQ(LiveRecords(CacheStream::kCsaOverlapState, 10), (IndexRange{4, 10}));
  EXPECT_EQ(LiveRecords(CacheStream::kIndexOverlapState, 3), (IndexRange{0, 3}));
  EXPECT_EQ(LiveRecords(CacheStream::kHcaState, 130), (IndexRange{128, 130}));
  EXPECT_EQ(LiveRecords(CacheStream::kMtpCarry, 130), (IndexRange{129, 130}));
}

TEST(HandoffBytesTest, SumsRecordsOverLayersAndStreams) {
  const CacheLayout layout{{{CacheStream::kCsaKv, RecordFormat::kBf16, 21, 1024},
                            {CacheStream::kHcaKv, RecordFormat::kBf16, 20, 1024}}};
  EXPECT_EQ(HandoffBytes(layout, 0), 0);
  EXPECT_EQ(HandoffBytes(layout, 256), (64 * 21 + 2 * 20) * 1024);
}

TEST(CacheLayoutTest, FindYieldsNullForAnAbsentStream) {
  const CacheLayout layout{{{CacheStream::kHcaKv, RecordFormat::kBf16, 2, 64}}};
  ASSERT_NE(layout.Find(CacheStream::kHcaKv), nullptr);
  EXPECT_EQ(layout.Find(CacheStream::kHcaKv)->layers, 2u);
  EXPECT_EQ(layout.Find(CacheStream::kCsaKv), nullptr);
}

TEST(CacheStreamTest, EveryStreamHasANameAndOnlyCompressedOnesAreAppendOnly) {
  int append_only = 0;
  for (const CacheStream stream : kAll) {
    EXPECT_NE(CacheStreamName(stream), "unknown");
    append_only += IsAppendOnly(stream) ? 1 : 0;
  }
  EXPECT_EQ(std::size(kAll), static_cast<size_t>(kCacheStreamCount));
  EXPECT_EQ(append_only, 3);
}

}  // namespace
}  // namespace baton
