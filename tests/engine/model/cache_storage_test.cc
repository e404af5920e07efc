#include <limits>
#include <string>

#include "engine/cache/geometry.h"
#include "engine/cache/storage.h"
#include "engine/model/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/model/test_files.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using kernels::EntryFormat;
using ::testing::HasSubstr;

ModelConfig TestConfig() { return *ParseModelConfig(ReadFile(kModelDir + "/config.json")); }

CacheGeometry Geometry(const CacheOptions& options) {
  return *MakeCacheGeometry(TestConfig(), options);
}

// V4-Flash's layers: two of window kind, then CSA and HCA in turn, and one MTP block.
ModelConfig FlashConfig() {
  ModelConfig config = TestConfig();
  config.hidden_size = 4096;
  config.num_hidden_layers = 43;
  config.compress_ratios = {0, 0};
  for (int layer = 2; layer < 43; ++layer) config.compress_ratios.push_back(layer % 2 ? 128 : 4);
  config.compress_ratios.push_back(0);
  return config;
}

TEST(CacheGeometryTest, SizesOfFlashAreTheFormatsOwn) {
  CacheOptions options;
  CacheGeometry geometry = *MakeCacheGeometry(FlashConfig(), options);
  EXPECT_EQ(geometry.csa_layers, 21);
  EXPECT_EQ(geometry.hca_layers, 20);
  EXPECT_EQ(geometry.page_bytes(), 6880 * 256);
  EXPECT_EQ(geometry.PagesFor(0), 0);
  EXPECT_EQ(geometry.PagesFor(256), 1);
  EXPECT_EQ(geometry.PagesFor(257), 2);

  options.kv_format = EntryFormat::kFp8Packed;
  options.index_format = EntryFormat::kFp4Index;
  geometry = *MakeCacheGeometry(FlashConfig(), options);
  EXPECT_EQ(geometry.page_bytes(), 21 * (37440 + 64 * 68) + 20 * 1728);
}

TEST(CacheGeometryTest, LayoutListsEveryStreamWithItsRecordSize) {
  const CacheLayout layout = Geometry({.index_format = EntryFormat::kFp8Index}).layout();
  EXPECT_EQ(layout.streams.size(), static_cast<size_t>(kCacheStreamCount));
  const StreamLayout* keys = layout.Find(CacheStream::kIndexKey);
  ASSERT_NE(keys, nullptr);
  EXPECT_EQ(keys->format, RecordFormat::kFp8Index);
  EXPECT_EQ(keys->layers, 3u);
  EXPECT_EQ(keys->record_bytes, 132u);
  EXPECT_EQ(layout.Find(CacheStream::kCsaKv)->record_bytes, 1024u);
  EXPECT_EQ(layout.Find(CacheStream::kWindowKv)->layers, 7u);
  EXPECT_EQ(layout.Find(CacheStream::kCsaState)->record_bytes, 4096u);
  EXPECT_EQ(layout.Find(CacheStream::kIndexState)->record_bytes, 1024u);
  EXPECT_EQ(layout.Find(CacheStream::kHcaState)->record_bytes, 4096u);
  EXPECT_EQ(layout.Find(CacheStream::kMtpCarry)->record_bytes, 2048u);
  for (size_t i = 1; i < layout.streams.size(); ++i) {
    EXPECT_LT(layout.streams[i - 1].stream, layout.streams[i].stream);
  }
}

TEST(CacheGeometryTest, WithoutMtpItsStreamsAreAbsent) {
  ModelConfig config = TestConfig();
  config.num_nextn_predict_layers = 0;
  const CacheLayout layout = MakeCacheGeometry(config, {})->layout();
  EXPECT_EQ(layout.Find(CacheStream::kMtpWindowKv), nullptr);
  EXPECT_EQ(layout.Find(CacheStream::kMtpCarry), nullptr);
}

TEST(CacheGeometryTest, OptionsThatDoNotFitAreNamed) {
  const auto refused = [](const CacheOptions& options) {
    return MakeCacheGeometry(TestConfig(), options);
  };
  const auto is_invalid = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(refused({}), IsOk());
  EXPECT_THAT(refused({.page_tokens = 0}), is_invalid("page_tokens is 0"));
  EXPECT_THAT(refused({.page_tokens = 192}), is_invalid("page_tokens is 192"));
  EXPECT_THAT(refused({.pages = 0}), is_invalid("pages is 0"));
  EXPECT_THAT(refused({.slots = 0}), is_invalid("slots is 0"));
  EXPECT_THAT(refused({.rollback_rows = 0}), is_invalid("rollback_rows is 0"));
  EXPECT_THAT(refused({.rollback_rows = 65}), is_invalid("rollback_rows is 65"));
  EXPECT_THAT(refused({.kv_format = EntryFormat::kFp4Index}), is_invalid("kv_format"));
  EXPECT_THAT(refused({.index_format = EntryFormat::kFp8Packed}), is_invalid("index_format"));
}

TEST(CacheStorageTest, PoolsAndRingsFillTheirMemoryWithoutOverlap) {
  const CacheGeometry geometry = Geometry({.page_tokens = 128, .pages = 3, .slots = 2});
  const CacheStorage storage(geometry);
  std::vector<std::pair<const std::byte*, int64_t>> page_regions;
  for (int layer = 0; layer < geometry.csa_layers; ++layer) {
    for (const kernels::PagedPool& pool : {storage.CsaKv(layer), storage.IndexKeys(layer)}) {
      page_regions.emplace_back(pool.data, pool.page_bytes * 3);
    }
  }
  for (int layer = 0; layer < geometry.hca_layers; ++layer) {
    const kernels::PagedPool pool = storage.HcaKv(layer);
    page_regions.emplace_back(pool.data, pool.page_bytes * 3);
  }
  std::vector<std::pair<const std::byte*, int64_t>> slot_regions;
  const auto add = [&](const auto& ring) {
    slot_regions.emplace_back(reinterpret_cast<const std::byte*>(ring.data),
                              int64_t{ring.rows} * ring.width * sizeof(*ring.data));
  };
  for (int slot = 0; slot < 2; ++slot) {
    for (int layer = 0; layer < geometry.trunk_layers; ++layer) add(storage.Window(slot, layer));
    for (int csa = 0; csa < geometry.csa_layers; ++csa) {
      add(storage.CsaState(slot, csa));
      add(storage.IndexState(slot, csa));
    }
    for (int hca = 0; hca < geometry.hca_layers; ++hca) add(storage.HcaState(slot, hca));
    add(storage.MtpWindow(slot));
    add(storage.Carry(slot));
  }
  const auto bytes_if_adjacent = [](auto& regions) {
    std::sort(regions.begin(), regions.end());
    int64_t bytes = 0;
    for (size_t i = 0; i < regions.size(); ++i) {
      if (i > 0) {
        EXPECT_EQ(regions[i - 1].first + regions[i - 1].second, regions[i].first) << i;
      }
      bytes += regions[i].second;
    }
    return bytes;
  };
  EXPECT_EQ(bytes_if_adjacent(page_regions), 3 * geometry.page_bytes());
  EXPECT_EQ(bytes_if_adjacent(slot_regions), 2 * geometry.slot_bytes());
}

TEST(CacheStorageTest, MemoryIsZeroAtConstruction) {
  const CacheStorage storage(Geometry({.pages = 2, .slots = 1}));
  const kernels::PagedPool pool = storage.HcaKv(1);
  for (int64_t i = 0; i < 2 * pool.page_bytes; ++i) ASSERT_EQ(pool.data[i], std::byte{0});
  const kernels::RowRing<float> ring = storage.HcaState(0, 1);
  for (int64_t i = 0; i < int64_t{ring.rows} * ring.width; ++i) ASSERT_EQ(ring.data[i], 0.0f);
}

TEST(CacheStorageTest, MoreThanTheSystemHasIsAnErrorThatNamesTheOption) {
  const CacheGeometry geometry =
      *MakeCacheGeometry(FlashConfig(), {.pages = std::numeric_limits<int32_t>::max()});
  EXPECT_THAT(CacheStorage::InMainMemory(geometry),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("pages is 2147483647")));
}

}  // namespace
}  // namespace baton::engine
