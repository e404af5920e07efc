#include <cstring>
#include <vector>

#include "tests/engine/cuda/cuda_test.h"

namespace baton::engine {
namespace {

using kernels::EntryFormat;

std::vector<std::byte> Pattern(size_t bytes, uint32_t seed) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<std::byte>((i * 7 + seed * 31 + (i >> 8)) & 0xff);
  }
  return pattern;
}

// What is scattered into device memory is what is gathered from it, and what main memory would
// hold.
TEST(DeviceRecordsTest, HoldWhatMainMemoryWouldHold) {
  for (const EntryFormat kv : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    for (const EntryFormat index :
         {EntryFormat::kBf16, EntryFormat::kFp8Index, EntryFormat::kFp4Index}) {
      const CacheGeometry geometry = BothBackends::Geometry(
          {.page_tokens = 128, .pages = 12, .slots = 3, .kv_format = kv, .index_format = index});
      PageList pages(8);
      const std::vector<int32_t> ids = {7, 2, 9, 4, 11};
      pages.Append(ids);
      auto on_host = *BothBackends::Get("cpu").NewCache(geometry);
      auto on_device = *BothBackends::Get("cuda").NewCache(geometry);
      auto host = BothBackends::Get("cpu").NewRecords(*on_host, pages, 1);
      auto device = BothBackends::Get("cuda").NewRecords(*on_device, pages, 1);
      constexpr int64_t kTokens = 5 * 128 - 3;
      uint32_t seed = 0;
      for (const StreamLayout& stream : geometry.layout().streams) {
        for (uint32_t layer = 0; layer < stream.layers; ++layer) {
          const RecordRange range{stream.stream, layer, LiveRecords(stream.stream, kTokens)};
          if (range.indices.size() == 0) continue;
          const auto bytes = static_cast<size_t>(range.indices.size()) * stream.record_bytes;
          const std::vector<std::byte> pattern = Pattern(bytes, ++seed);
          host->Scatter(range, pattern);
          device->Scatter(range, pattern);
        }
      }
      for (const StreamLayout& stream : geometry.layout().streams) {
        for (uint32_t layer = 0; layer < stream.layers; ++layer) {
          const RecordRange range{stream.stream, layer, LiveRecords(stream.stream, kTokens)};
          const auto bytes = static_cast<size_t>(range.indices.size()) * stream.record_bytes;
          std::vector<std::byte> expected(bytes);
          std::vector<std::byte> actual(bytes, std::byte{0xee});
          host->Gather(range, expected);
          device->Gather(range, actual);
          EXPECT_EQ(actual, expected) << CacheStreamName(stream.stream) << " " << layer;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine
