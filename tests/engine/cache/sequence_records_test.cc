#include "engine/cache/sequence_records.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using kernels::EntryFormat;

CacheGeometry Geometry(int page_tokens, int rollback_rows, EntryFormat kv = EntryFormat::kBf16,
                       EntryFormat index = EntryFormat::kBf16) {
  return {.options = {.page_tokens = page_tokens,
                      .pages = 8,
                      .slots = 3,
                      .rollback_rows = rollback_rows,
                      .kv_format = kv,
                      .index_format = index},
          .trunk_layers = 3,
          .csa_layers = 2,
          .hca_layers = 1,
          .mtp_layers = 1,
          .hidden_size = 16,
          .streams = 4,
          .head_dim = 512,
          .index_head_dim = 128};
}

// A sequence's cache outside an engine, on pages that are not in order.
struct Cache {
  Cache(const CacheGeometry& geometry, int slot, std::vector<int32_t> ids)
      : storage(geometry), pages(8), records(storage, pages, slot) {
    pages.Append(ids);
  }
  CacheStorage storage;
  PageList pages;
  StoredRecords records;
};

// Bytes that tell every record of every stream from every other.
std::vector<std::byte> Pattern(const RecordRange& range, uint32_t record_bytes) {
  std::vector<std::byte> bytes;
  for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
    for (uint32_t b = 0; b < record_bytes; ++b) {
      const auto value = static_cast<uint32_t>(range.stream) * 131 + range.layer * 37 +
                         static_cast<uint32_t>(i) * 7 + b * 3 + (b >> 8);
      bytes.push_back(static_cast<std::byte>(value));
    }
  }
  return bytes;
}

std::vector<RecordRange> LiveRanges(const CacheLayout& layout, int64_t tokens) {
  std::vector<RecordRange> ranges;
  for (const StreamLayout& stream : layout.streams) {
    for (uint32_t layer = 0; layer < stream.layers; ++layer) {
      ranges.push_back({stream.stream, layer, LiveRecords(stream.stream, tokens)});
    }
  }
  return ranges;
}

void FillWithPattern(Cache& cache, int64_t tokens) {
  const CacheLayout layout = cache.storage.geometry().layout();
  for (const RecordRange& range : LiveRanges(layout, tokens)) {
    cache.records.Scatter(range, Pattern(range, layout.Find(range.stream)->record_bytes));
  }
}

void ExpectPattern(const Cache& cache, int64_t tokens) {
  const CacheLayout layout = cache.storage.geometry().layout();
  for (const RecordRange& range : LiveRanges(layout, tokens)) {
    const std::vector<std::byte> expected = Pattern(range, layout.Find(range.stream)->record_bytes);
    std::vector<std::byte> bytes(expected.size());
    cache.records.Gather(range, bytes);
    EXPECT_TRUE(bytes == expected) << CacheStreamName(range.stream) << " layer " << range.layer
                                   << " at " << tokens << " tokens";
  }
}

TEST(SequenceRecordsTest, EveryLiveRecordSurvivesAStoreIntoAnotherGeometry) {
  for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 127, 128, 129, 131, 255, 256, 257, 511, 512}) {
    Cache source(Geometry(/*page_tokens=*/128, /*rollback_rows=*/8), 1, {5, 0, 7, 2});
    Cache target(Geometry(/*page_tokens=*/256, /*rollback_rows=*/3), 2, {3, 1});
    FillWithPattern(source, tokens);
    ExpectPattern(source, tokens);
    const CacheLayout layout = source.storage.geometry().layout();
    ASSERT_EQ(layout, target.storage.geometry().layout());
    for (const RecordRange& range : LiveRanges(layout, tokens)) {
      std::vector<std::byte> bytes(static_cast<size_t>(range.indices.size()) *
                                   layout.Find(range.stream)->record_bytes);
      source.records.Gather(range, bytes);
      target.records.Scatter(range, bytes);
    }
    ExpectPattern(target, tokens);
  }
}

TEST(SequenceRecordsTest, PackedFormatsKeepTheirScalesWithTheRecord) {
  Cache cache(Geometry(128, 8, EntryFormat::kFp8Packed, EntryFormat::kFp4Index), 0, {6, 1, 4});
  FillWithPattern(cache, 384);
  ExpectPattern(cache, 384);
  Cache index_fp8(Geometry(256, 8, EntryFormat::kFp8Packed, EntryFormat::kFp8Index), 0, {6, 1});
  FillWithPattern(index_fp8, 384);
  ExpectPattern(index_fp8, 384);
}

TEST(SequenceRecordsTest, PiecesHoldTheSameBytesInTheSameOrder) {
  const std::pair<EntryFormat, EntryFormat> formats[] = {
      {EntryFormat::kBf16, EntryFormat::kBf16},
      {EntryFormat::kFp8Packed, EntryFormat::kFp8Index},
      {EntryFormat::kFp8Packed, EntryFormat::kFp4Index}};
  for (const auto& [kv, index] : formats) {
    Cache cache(Geometry(128, 8, kv, index), 1, {6, 1, 4});
    FillWithPattern(cache, 383);
    const CacheLayout layout = cache.storage.geometry().layout();
    for (const RecordRange& range : LiveRanges(layout, 383)) {
      std::vector<RecordPiece> pieces;
      cache.records.AppendPieces(range, &pieces);
      std::vector<std::byte> bytes;
      for (const RecordPiece& piece : pieces) {
        bytes.insert(bytes.end(), piece.data, piece.data + piece.bytes);
      }
      EXPECT_TRUE(bytes == Pattern(range, layout.Find(range.stream)->record_bytes))
          << CacheStreamName(range.stream) << " layer " << range.layer;
    }
  }
}

TEST(SequenceRecordsTest, SlotsAndPagesOfOthersAreLeftAlone) {
  Cache cache(Geometry(128, 8), 1, {2, 4});
  PageList other_pages(8);
  other_pages.Append(std::vector<int32_t>{0, 3});
  StoredRecords other(cache.storage, other_pages, 2);
  FillWithPattern(cache, 256);
  const CacheLayout layout = cache.storage.geometry().layout();
  for (const RecordRange& range : LiveRanges(layout, 256)) {
    const size_t bytes =
        static_cast<size_t>(range.indices.size()) * layout.Find(range.stream)->record_bytes;
    other.Scatter(range, std::vector<std::byte>(bytes, std::byte{0xff}));
  }
  ExpectPattern(cache, 256);
}

// The rows of the rings are [c_a, c_b, g_a, g_b]; a record holds one half.
TEST(SequenceRecordsTest, CompressorHalvesAreCutOutOfTheirRows) {
  Cache cache(Geometry(128, 8), 0, {0});
  const kernels::RowRing<float> ring = cache.storage.CsaState(0, 1);
  for (int i = 0; i < ring.width; ++i) ring.Row(5)[i] = static_cast<float>(i);
  std::vector<float> record(1024);
  cache.records.Gather({CacheStream::kCsaOverlapState, 1, {5, 6}},
                       std::as_writable_bytes(std::span(record)));
  EXPECT_EQ(record[0], 0);  // c_a
  EXPECT_EQ(record[511], 511);
  EXPECT_EQ(record[512], 1024);  // g_a
  EXPECT_EQ(record[1023], 1535);
  cache.records.Gather({CacheStream::kCsaState, 1, {5, 6}},
                       std::as_writable_bytes(std::span(record)));
  EXPECT_EQ(record[0], 512);     // c_b
  EXPECT_EQ(record[512], 1536);  // g_b

  for (float& value : record) value = -value;
  cache.records.Scatter({CacheStream::kCsaState, 1, {5, 6}}, std::as_bytes(std::span(record)));
  EXPECT_EQ(ring.Row(5)[511], 511);  // the other half stays
  EXPECT_EQ(ring.Row(5)[512], -512);
  EXPECT_EQ(ring.Row(5)[1535], 1535);
  EXPECT_EQ(ring.Row(5)[1536], -1536);
}

TEST(SequenceRecordsTest, RangesMayWrapRoundTheRing) {
  Cache cache(Geometry(128, 1), 0, {0, 1, 2});  // window ring of 129 rows
  const RecordRange range{CacheStream::kWindowKv, 2, {100, 229}};
  const std::vector<std::byte> expected = Pattern(range, 1024);
  cache.records.Scatter(range, expected);
  std::vector<std::byte> bytes(expected.size());
  cache.records.Gather(range, bytes);
  EXPECT_TRUE(bytes == expected);
}

TEST(SequenceRecordsTest, AnEmptyRangeIsFine) {
  Cache cache(Geometry(128, 8), 0, {0});
  cache.records.Gather({CacheStream::kCsaKv, 0, {0, 0}}, {});
  cache.records.Scatter({CacheStream::kMtpCarry, 0, {7, 7}}, {});
}

TEST(SequenceRecordsTest, PagesReservedMeanwhileDoNotDisturbATransfer) {
  Cache cache(Geometry(128, 8), 0, {0});
  const RecordRange range{CacheStream::kCsaKv, 0, {0, 32}};
  const std::vector<std::byte> expected = Pattern(range, 1024);
  std::jthread transfer([&] {
    for (int i = 0; i < 200; ++i) {
      cache.records.Scatter(range, expected);
      std::vector<std::byte> bytes(expected.size());
      cache.records.Gather(range, bytes);
      EXPECT_TRUE(bytes == expected);
    }
  });
  for (int32_t page = 1; page < 8; ++page) cache.pages.Append(std::vector<int32_t>{page});
  transfer.join();
}

TEST(SequenceRecordsDeathTest, RangesThatWereNeverReservedAreFatal) {
  Cache cache(Geometry(128, 8), 0, {0});
  std::vector<std::byte> bytes(1024);
  EXPECT_DEATH(cache.records.Gather({CacheStream::kCsaKv, 0, {32, 33}}, bytes), "csa_kv records");
  EXPECT_DEATH(cache.records.Gather({CacheStream::kHcaKv, 0, {1, 2}}, bytes), "hca_kv records");
  EXPECT_DEATH(cache.records.Scatter({CacheStream::kWindowKv, 0, {128, 129}}, bytes),
               "window_kv records");
  EXPECT_DEATH(cache.records.Scatter({CacheStream::kWindowKv, 0, {-1, 0}}, bytes),
               "window_kv records");
  EXPECT_DEATH(cache.records.Gather({CacheStream::kCsaKv, 2, {0, 1}}, bytes), "layer 2 of 2");
  EXPECT_DEATH(cache.records.Gather({CacheStream::kCsaKv, 0, {0, 2}}, bytes),
               "1024 bytes for 2 records");
}

TEST(SequenceRecordsDeathTest, AStreamThatTheModelDoesNotHaveIsFatal) {
  CacheGeometry geometry = Geometry(128, 8);
  geometry.mtp_layers = 0;
  Cache cache(geometry, 0, {0});
  std::vector<std::byte> bytes(1024);
  EXPECT_DEATH(cache.records.Gather({CacheStream::kMtpWindowKv, 0, {0, 1}}, bytes),
               "no mtp_window_kv");
}

}  // namespace
}  // namespace baton::engine
