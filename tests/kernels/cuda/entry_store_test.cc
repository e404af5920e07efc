#include "kernels/cuda/entry_store.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/rope.h"
#include "kernels/entry_store.h"
#include "tests/kernels/cuda/pages.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kRatio = 4;

const RopeTable& Table() {
  static const RopeTable table({.theta = 160000, .factor = 16});
  return table;
}

using Case = std::tuple<EntryKind, Numerics>;

class StoreEntriesTest : public CudaTest, public testing::WithParamInterface<Case> {
 protected:
  struct Row {
    int sequence;  // -1: nothing to store
    int entry;
  };

  // Stores `pooled` [rows, head_dim] on both sides.
  static void Store(TwinPages& pages, const std::vector<Row>& rows,
                    const std::vector<BFloat16>& pooled, int entries, int ratio = kRatio) {
    const int head_dim = pages.host_pool().head_dim;
    const Numerics numerics = std::get<1>(GetParam());
    const std::vector<BFloat16> weight = RandomValues<BFloat16>(head_dim, 7);
    const std::vector<float> wide_weight = Floats(weight);
    std::vector<int32_t> sequence, entry;
    for (const Row& row : rows) {
      sequence.push_back(row.sequence);
      entry.push_back(row.entry);
    }
    DeviceArray<float> rope(int64_t{entries} * kRopeDim);
    FillRopeTable(FrequenciesOf(Table()), ratio, entries, rope.get(), TestStream().get());
    const DeviceArray<BFloat16> device_pooled(pooled), device_weight(weight);
    const DeviceArray<int32_t> device_sequence(sequence), device_entry(entry);
    StoreEntries({.pooled = device_pooled.get(),
                  .sequence = device_sequence.get(),
                  .entry = device_entry.get(),
                  .rows = static_cast<int64_t>(rows.size()),
                  .page_table = pages.device_table(),
                  .max_pages = pages.pages_each(),
                  .weight = device_weight.get(),
                  .rope = RopeOf(ratio, rope),
                  .numerics = numerics,
                  .pool = pages.device_pool()},
                 TestStream().get());
    TestStream().Synchronize();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].sequence < 0) continue;
      kernels::StoreEntries({.pooled = {pooled.data() + i * head_dim, 1, head_dim},
                             .first_entry = rows[i].entry,
                             .ratio = ratio,
                             .weight = wide_weight,
                             .rope = &Table(),
                             .numerics = numerics,
                             .pool = pages.host_pool(),
                             .pages = pages.host_table(rows[i].sequence)},
                            TestPool());
    }
  }

  static EntryRope RopeOf(int ratio, const DeviceArray<float>& table) {
    return {.frequencies = FrequenciesOf(Table()), .step = ratio, .table = table.get()};
  }
  static const EntryKind& Kind() { return std::get<0>(GetParam()); }
  // Index keys are summed in another order than on the CPU, and rounded in fewer places.
  static int64_t AllowedDifferences(int64_t stored_bytes) {
    return Kind().head_dim == 128 ? stored_bytes / 1000 : 0;
  }
};

TEST_P(StoreEntriesTest, WritesTheBytesOfTheCpuOp) {
  constexpr int kPerPage = 64;
  constexpr int kEntries = 150;  // three pages a sequence, the last one not full
  TwinPages pages(Kind().format, Kind().head_dim, kPerPage, 3, kEntries);
  std::vector<Row> rows;
  for (int entry = 0; entry < kEntries; ++entry) {
    rows.push_back({.sequence = 2, .entry = entry});
    if (entry % 3 == 0) rows.push_back({.sequence = 0, .entry = kEntries - 1 - entry});
    if (entry % 7 == 0) rows.push_back({.sequence = -1, .entry = 1 << 30});
    if (entry == 70) rows.push_back({.sequence = 1, .entry = 64});
  }
  const std::vector<BFloat16> pooled =
      RandomWithOutliers<BFloat16>(rows.size() * Kind().head_dim, 1);
  Store(pages, rows, pooled, kEntries);
  const int64_t stored =
      static_cast<int64_t>(rows.size()) * RecordBytes(Kind().format, Kind().head_dim);
  EXPECT_LE(pages.DifferentBytes(), AllowedDifferences(stored));
}

// A value on the other side of a rounding moves a whole row a little: only many rows show how
// often. Their positions reach a million.
TEST_P(StoreEntriesTest, FewBytesOfManyRowsDiffer) {
  constexpr int kEntries = 4096;
  constexpr int kTokens = 256;
  TwinPages pages(Kind().format, Kind().head_dim, 64, 1, kEntries);
  std::vector<Row> rows;
  for (int entry = 0; entry < kEntries; ++entry) rows.push_back({.sequence = 0, .entry = entry});
  const auto pooled = RandomWithOutliers<BFloat16>(int64_t{kEntries} * Kind().head_dim, 2);
  Store(pages, rows, pooled, kEntries, kTokens);
  const int64_t stored = int64_t{kEntries} * RecordBytes(Kind().format, Kind().head_dim);
  const int64_t different = pages.DifferentBytes();
  RecordProperty("different_bytes", std::to_string(different));
  EXPECT_LE(different, AllowedDifferences(stored));
}

// Of the one, warps take several tiles, of the others one.
TEST_P(StoreEntriesTest, ALongLaunchStoresTheBytesOfShortOnes) {
  constexpr int kRows = 200'003;
  constexpr int kShort = 8'001;
  constexpr int kPattern = 1'000;  // rows, again and again
  constexpr int kPerPage = 64;
  constexpr int kPages = kRows / kPerPage + 1;
  const int head_dim = Kind().head_dim;
  const auto pattern = RandomWithOutliers<BFloat16>(int64_t{kPattern} * head_dim, 8);
  std::vector<BFloat16> rows;
  while (static_cast<int64_t>(rows.size()) < int64_t{kRows} * head_dim) {
    rows.insert(rows.end(), pattern.begin(), pattern.end());
  }
  std::vector<int32_t> sequences(kRows), entries(kRows), ids(kPages);
  std::iota(entries.begin(), entries.end(), 0);
  std::iota(ids.rbegin(), ids.rend(), 0);
  const DeviceArray<BFloat16> pooled(rows), weight(RandomValues<BFloat16>(head_dim, 7));
  const DeviceArray<int32_t> sequence(sequences), entry(entries), table(ids);
  DeviceArray<float> rope(int64_t{kRows} * kRopeDim);
  FillRopeTable(FrequenciesOf(Table()), kRatio, kRows, rope.get(), TestStream().get());
  const int64_t page_bytes = PageBytes(Kind().format, head_dim, kPerPage);
  const auto store = [&](std::byte* data, int first, int count) {
    StoreEntries({.pooled = pooled.get() + int64_t{first} * head_dim,
                  .sequence = sequence.get() + first,
                  .entry = entry.get() + first,
                  .rows = count,
                  .page_table = table.get(),
                  .max_pages = kPages,
                  .weight = weight.get(),
                  .rope = RopeOf(kRatio, rope),
                  .numerics = std::get<1>(GetParam()),
                  .pool = {.data = data,
                           .format = Kind().format,
                           .head_dim = head_dim,
                           .entries_per_page = kPerPage,
                           .page_bytes = page_bytes}},
                 TestStream().get());
  };
  DeviceArray<std::byte> once(kPages * page_bytes), piecewise(kPages * page_bytes);
  store(once.get(), 0, kRows);
  for (int first = 0; first < kRows; first += kShort) {
    store(piecewise.get(), first, std::min(kShort, kRows - first));
  }
  EXPECT_EQ(CountDifferent(once.Download(), piecewise.Download()), 0);
}

TEST_P(StoreEntriesTest, StoresFewRowsAndNone) {
  for (const int count : {0, 1, 2, 15, 16, 17}) {
    TwinPages pages(Kind().format, Kind().head_dim, 16, 1, 32);
    std::vector<Row> rows;
    for (int i = 0; i < count; ++i) rows.push_back({.sequence = 0, .entry = 14 + i});
    Store(pages, rows, RandomValues<BFloat16>(int64_t{count} * Kind().head_dim, count + 1), 32);
    EXPECT_LE(pages.DifferentBytes(), AllowedDifferences(count * Kind().head_dim)) << count;
  }
}

TEST_P(StoreEntriesTest, TinyAndHugeRowsAreStoredAsOnTheCpu) {
  TwinPages pages(Kind().format, Kind().head_dim, 64, 1, 64);
  std::vector<Row> rows;
  std::vector<BFloat16> pooled;
  for (const float deviation : {0.0f, 1e-30f, 1e-6f, 1e-3f, 1e3f, 1e15f}) {
    rows.push_back({.sequence = 0, .entry = static_cast<int>(rows.size())});
    const auto values = RandomValues<BFloat16>(Kind().head_dim, 3, deviation);
    pooled.insert(pooled.end(), values.begin(), values.end());
  }
  Store(pages, rows, pooled, 64);
  EXPECT_LE(pages.DifferentBytes(), AllowedDifferences(6 * Kind().head_dim * 4));
}

TEST_P(StoreEntriesTest, NanShowsInItsEntryAlone) {
  TwinPages pages(Kind().format, Kind().head_dim, 64, 1, 64);
  std::vector<Row> rows;
  for (int i = 0; i < 20; ++i) rows.push_back({.sequence = 0, .entry = i});
  auto pooled = RandomValues<BFloat16>(20 * Kind().head_dim, 5);
  pooled[9 * Kind().head_dim + 17] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  Store(pages, rows, pooled, 64);
  const std::vector<float> values = Floats(pages.DeviceValues(0, 20));
  for (int i = 0; i < 20 * Kind().head_dim; ++i) {
    ASSERT_EQ(std::isnan(values[i]), i / Kind().head_dim == 9) << "value " << i;
  }
}

// Pages whose bytes lie beyond 2^31 and 2^32.
TEST_P(StoreEntriesTest, ReachesPagesFarIntoThePool) {
  constexpr int kPerPage = 64;
  const int64_t page_bytes = PageBytes(Kind().format, Kind().head_dim, kPerPage);
  const auto last_page = static_cast<int32_t>((int64_t{1} << 32) / page_bytes + 1);
  DeviceArray<std::byte> memory((last_page + 1) * page_bytes);
  TwinPages near(Kind().format, Kind().head_dim, kPerPage, 1, kPerPage);
  const std::vector<BFloat16> pooled = RandomValues<BFloat16>(Kind().head_dim, 6);
  Store(near, {{.sequence = 0, .entry = 63}}, pooled, kPerPage);
  const DeviceArray<BFloat16> device_pooled(pooled),
      weight(RandomValues<BFloat16>(Kind().head_dim, 7));
  DeviceArray<float> rope(kPerPage * kRopeDim);
  FillRopeTable(FrequenciesOf(Table()), kRatio, kPerPage, rope.get(), TestStream().get());
  const DeviceArray<int32_t> zero(std::vector<int32_t>{0}), entry(std::vector<int32_t>{63}),
      table(std::vector<int32_t>{last_page});
  PagedPool pool = near.device_pool();
  pool.data = memory.get();
  StoreEntries({.pooled = device_pooled.get(),
                .sequence = zero.get(),
                .entry = entry.get(),
                .rows = 1,
                .page_table = table.get(),
                .max_pages = 1,
                .weight = weight.get(),
                .rope = RopeOf(kRatio, rope),
                .numerics = std::get<1>(GetParam()),
                .pool = pool},
               TestStream().get());
  std::vector<std::byte> page = memory.Download(last_page * page_bytes, page_bytes);
  pool.data = page.data();
  const std::vector<int32_t> first = {0};
  std::vector<BFloat16> far_values(Kind().head_dim);
  DecodeEntry(pool, {first}, 63, far_values.data());
  const std::vector<BFloat16> all = near.DeviceValues(0, 64);
  EXPECT_EQ(CountDifferent(far_values, {all.end() - Kind().head_dim, all.end()}), 0);
}

INSTANTIATE_TEST_SUITE_P(All, StoreEntriesTest,
                         testing::Combine(testing::ValuesIn(kEntryKinds),
                                          testing::Values(Numerics::kReference, Numerics::kExact)),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == Numerics::kReference ? "Reference"
                                                                                   : "Exact");
                         });

TEST(StoreEntriesDeathTest, FormatOfTheOtherHeadDimIsRefused) {
  StoreEntriesParams params;
  params.rows = 1;
  params.pool = {.format = EntryFormat::kFp8Packed,
                 .head_dim = 128,
                 .entries_per_page = 64,
                 .page_bytes = 64 * 584};
  EXPECT_DEATH(StoreEntries(params, nullptr), "kFp8Packed needs head_dim 512, not 128");
  params.pool.head_dim = 256;
  EXPECT_DEATH(StoreEntries(params, nullptr), "no kernel for head_dim 256");
}

}  // namespace
}  // namespace baton::kernels::cuda
