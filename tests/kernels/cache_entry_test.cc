#include "kernels/cache_entry.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/numeric.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

struct Format {
  EntryFormat format;
  int head_dim;
  int64_t record_bytes;
};

constexpr Format kFormats[] = {{EntryFormat::kBf16, 512, 1024},
                               {EntryFormat::kBf16, 128, 256},
                               {EntryFormat::kFp8Packed, 512, 584},
                               {EntryFormat::kFp8Index, 128, 132},
                               {EntryFormat::kFp4Index, 128, 68}};

TEST(PageBytesTest, IsRoundedUpForPackedKvOnly) {
  EXPECT_EQ(PageBytes(EntryFormat::kFp8Packed, 512, 64), 37440);
  EXPECT_EQ(PageBytes(EntryFormat::kFp8Packed, 512, 128), 74880);
  EXPECT_EQ(PageBytes(EntryFormat::kFp8Packed, 512, 256), 149760);
  EXPECT_EQ(PageBytes(EntryFormat::kFp8Packed, 512, 2), 1728);
  EXPECT_EQ(PageBytes(EntryFormat::kBf16, 512, 64), 65536);
  EXPECT_EQ(PageBytes(EntryFormat::kBf16, 128, 64), 16384);
  EXPECT_EQ(PageBytes(EntryFormat::kFp8Index, 128, 64), 64 * 132);
  EXPECT_EQ(PageBytes(EntryFormat::kFp4Index, 128, 64), 64 * 68);
}

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(CacheEntryTest, PackedKvHasCodesThenRopeThenAllScalesOfThePage) {
  TestPages pages(EntryFormat::kFp8Packed, 512, 2, 2);
  std::vector<BFloat16> values(512, BFloat16(0.0f));
  values[0] = BFloat16(448.0f);  // group 0: scale 1
  values[1] = BFloat16(-1.5f);
  values[447] = BFloat16(900.0f);  // group 6: scale 4
  values[448] = BFloat16(1.0f);
  EncodeEntry(pages.pool, pages.table, 1, values.data());
  const std::byte* page = pages.memory.data() + pages.pool.page_bytes;
  const std::byte* record = page + 576;
  EXPECT_EQ(std::vector(record, record + 3), Bytes({0x7e, 0xbc, 0x00}));
  EXPECT_EQ(record[447], std::byte{0x76});  // 224 = 900 / 4 on the grid
  EXPECT_EQ(std::vector(record + 448, record + 452), Bytes({0x80, 0x3f, 0x00, 0x00}));
  const std::byte* scales = page + 2 * 576 + 8;
  // Groups of zeros have the smallest scale, 2^-22; the eighth byte pads.
  EXPECT_EQ(std::vector(scales, scales + 8), Bytes({127, 105, 105, 105, 105, 105, 129, 0}));
}

TEST(CacheEntryTest, Fp8IndexScalesFollowAllValuesOfThePage) {
  TestPages pages(EntryFormat::kFp8Index, 128, 4, 4);
  std::vector<BFloat16> values(128, BFloat16(0.0f));
  values[127] = BFloat16(-3.5f);  // scale 2^-7: 3.5 / 448
  EncodeEntry(pages.pool, pages.table, 2, values.data());
  const std::byte* page = pages.memory.data() + pages.pool.page_bytes;
  EXPECT_EQ(page[2 * 128 + 127], std::byte{0xfe});
  float scale = 0;
  std::memcpy(&scale, page + 4 * 128 + 2 * 4, sizeof(scale));
  EXPECT_EQ(scale, 0.0078125f);
}

TEST(CacheEntryTest, Fp4IndexPacksTheEvenChannelLow) {
  TestPages pages(EntryFormat::kFp4Index, 128, 4, 4);
  std::vector<BFloat16> values(128, BFloat16(0.0f));
  values[0] = BFloat16(6.0f);
  values[1] = BFloat16(-0.5f);
  values[96] = BFloat16(0.75f);
  EncodeEntry(pages.pool, pages.table, 3, values.data());
  const std::byte* page = pages.memory.data() + pages.pool.page_bytes;
  EXPECT_EQ(page[3 * 64], std::byte{0x97});
  EXPECT_EQ(page[3 * 64 + 48], std::byte{0x07});
  const std::byte* scales = page + 4 * 64 + 3 * 4;
  EXPECT_EQ(std::vector(scales, scales + 4), Bytes({127, 1, 1, 124}));
}

TEST(CacheEntryTest, ValuesOnTheGridSurviveEveryFormat) {
  for (const Format& f : kFormats) {
    for (const int entries_per_page : {1, 2, 64}) {
      TestPages pages(f.format, f.head_dim, entries_per_page, 5);
      std::vector<std::vector<BFloat16>> written;
      for (uint32_t entry = 0; entry < 5; ++entry) {
        auto values = RandomValues<BFloat16>(f.head_dim, entry + 1);
        if (f.format == EntryFormat::kFp8Packed)
          FakeQuantFp8(values.data(), values.data(), 448, 64);
        if (f.format == EntryFormat::kFp8Index)
          FakeQuantFp8(values.data(), values.data(), 128, 128);
        if (f.format == EntryFormat::kFp4Index) FakeQuantFp4(values.data(), values.data(), 128);
        EncodeEntry(pages.pool, pages.table, entry, values.data());
        written.push_back(std::move(values));
      }
      for (int64_t entry = 0; entry < 5; ++entry) {
        std::vector<BFloat16> read(f.head_dim);
        DecodeEntry(pages.pool, pages.table, entry, read.data());
        EXPECT_EQ(Floats(read), Floats(written[entry])) << "entry " << entry;
      }
    }
  }
}

// The entry's bytes as a hand-off moves them.
std::vector<std::byte> LoadRecord(const TestPages& pages, int64_t entry) {
  const EntryBytes bytes = BytesOfEntry(pages.pool.format, pages.pool.head_dim);
  const EntryAddress at = LocateEntry(pages.pool, pages.table, entry);
  std::vector<std::byte> record(at.values, at.values + bytes.values);
  record.insert(record.end(), at.scales, at.scales + bytes.scales);
  return record;
}

void StoreRecord(const TestPages& pages, int64_t entry, const std::vector<std::byte>& record) {
  const EntryBytes bytes = BytesOfEntry(pages.pool.format, pages.pool.head_dim);
  const EntryAddress at = LocateEntry(pages.pool, pages.table, entry);
  std::copy_n(record.data(), bytes.values, at.values);
  std::copy_n(record.data() + bytes.values, bytes.scales, at.scales);
}

TEST(CacheEntryTest, ValuesOffTheGridAreRoundedByTheStore) {
  TestPages pages(EntryFormat::kFp8Packed, 512, 64, 1);
  const auto values = RandomValues<BFloat16>(512, 9);
  std::vector<BFloat16> expected = values, read(512);
  FakeQuantFp8(expected.data(), expected.data(), 448, 64);
  EncodeEntry(pages.pool, pages.table, 0, values.data());
  DecodeEntry(pages.pool, pages.table, 0, read.data());
  EXPECT_EQ(Floats(read), Floats(expected));
}

TEST(CacheEntryTest, NanShowsInEveryFormat) {
  for (const Format& format : kFormats) {
    TestPages pages(format.format, format.head_dim, 4, 4);
    std::vector<BFloat16> values(format.head_dim, BFloat16(1.0f));
    values[5] = BFloat16(std::numeric_limits<float>::quiet_NaN());
    EncodeEntry(pages.pool, pages.table, 2, values.data());
    DecodeEntry(pages.pool, pages.table, 2, values.data());
    EXPECT_TRUE(std::isnan(static_cast<float>(values[5]))) << format.record_bytes;
    EXPECT_EQ(values.back(), BFloat16(1.0f)) << format.record_bytes;
  }
}

TEST(CacheEntryTest, RecordsMoveBetweenPagesOfDifferentSizes) {
  for (const Format& f : kFormats) {
    EXPECT_EQ(RecordBytes(f.format, f.head_dim), f.record_bytes);
    TestPages source(f.format, f.head_dim, 64, 70);
    TestPages target(f.format, f.head_dim, 2, 70);
    const auto values = RandomValues<BFloat16>(f.head_dim, 3);
    for (const int64_t entry : {0, 1, 63, 64, 69}) {
      EncodeEntry(source.pool, source.table, entry, values.data());
      const std::vector<std::byte> record = LoadRecord(source, entry);
      EXPECT_EQ(std::ssize(record), f.record_bytes);
      StoreRecord(target, entry, record);
      std::vector<BFloat16> sent(f.head_dim), received(f.head_dim);
      DecodeEntry(source.pool, source.table, entry, sent.data());
      DecodeEntry(target.pool, target.table, entry, received.data());
      EXPECT_EQ(sent, received);
    }
  }
}

TEST(CacheEntryTest, WritingAnEntryTouchesNoOther) {
  for (const Format& f : kFormats) {
    TestPages pages(f.format, f.head_dim, 3, 9);
    const auto values = RandomValues<BFloat16>(f.head_dim, 4);
    const std::vector<std::byte> before = pages.memory;
    EncodeEntry(pages.pool, pages.table, 4, values.data());
    int64_t changed = 0;
    for (size_t i = 0; i < before.size(); ++i) changed += before[i] != pages.memory[i];
    EXPECT_LE(changed, f.record_bytes);
    const std::vector<std::byte> record = LoadRecord(pages, 4);
    pages.memory = before;
    pages.pool.data = pages.memory.data();
    StoreRecord(pages, 4, record);
    for (const int64_t entry : {0, 3, 5, 8}) {
      EXPECT_EQ(LoadRecord(pages, entry), std::vector<std::byte>(f.record_bytes, std::byte{0xcd}));
    }
  }
}

TEST(CacheEntryDeathTest, AnEntryBeyondThePageTableIsFatal) {
  TestPages pages(EntryFormat::kBf16, 128, 4, 4);
  std::vector<BFloat16> values(128);
  EXPECT_DEATH(DecodeEntry(pages.pool, pages.table, 4, values.data()), "beyond a page table");
}

}  // namespace
}  // namespace baton::kernels
