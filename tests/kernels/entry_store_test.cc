#include "kernels/entry_store.h"

#include <vector>

#include <gtest/gtest.h>

#include "kernels/cache_entry.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

struct Case {
  EntryFormat format;
  int head_dim;
  Numerics numerics;
};

class StoreEntriesTest : public ::testing::TestWithParam<Case> {};

// The same steps, op by op.
std::vector<BFloat16> Expected(const StoreEntriesParams& params, int64_t row) {
  const int n = params.pool.head_dim;
  std::vector<BFloat16> values(n);
  RmsNorm({.x = params.pooled.Rows(row, 1), .weight = params.weight, .y = View(values, 1, n)},
          TestPool());
  float cos_sin[kRopeDim];
  params.rope->Fill((params.first_entry + row) * params.ratio, cos_sin);
  RotateRow(values.data() + n - kRopeDim, cos_sin);
  if (n == 128) Hadamard128(values.data());
  if (params.numerics == Numerics::kReference) {
    if (n == 128) {
      FakeQuantFp4(values.data(), values.data(), n);
    } else {
      FakeQuantFp8(values.data(), values.data(), 448, 64);
    }
  }
  // The store's own rounding.
  TestPages page(params.pool.format, n, 1, 1);
  EncodeEntry(page.pool, page.table, 0, values.data());
  DecodeEntry(page.pool, page.table, 0, values.data());
  return values;
}

TEST_P(StoreEntriesTest, EqualsItsStepsOneByOne) {
  const Case c = GetParam();
  const int64_t entries = 37, first = 60;
  const auto pooled = RandomValues<BFloat16>(entries * c.head_dim, 1);
  const auto weight = RandomValues<float>(c.head_dim, 2);
  const RopeTable rope({.theta = 160000, .factor = 16});
  TestPages pages(c.format, c.head_dim, 64, first + entries);
  const StoreEntriesParams params = {.pooled = View(pooled, entries, c.head_dim),
                                     .first_entry = first,
                                     .ratio = 4,
                                     .weight = weight,
                                     .rope = &rope,
                                     .numerics = c.numerics,
                                     .pool = pages.pool,
                                     .pages = pages.table};
  StoreEntries(params, TestPool());
  for (int64_t row = 0; row < entries; ++row) {
    std::vector<BFloat16> stored(c.head_dim);
    DecodeEntry(pages.pool, pages.table, first + row, stored.data());
    EXPECT_EQ(stored, Expected(params, row)) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, StoreEntriesTest,
                         ::testing::Values(Case{EntryFormat::kBf16, 512, Numerics::kReference},
                                           Case{EntryFormat::kBf16, 512, Numerics::kExact},
                                           Case{EntryFormat::kFp8Packed, 512, Numerics::kReference},
                                           Case{EntryFormat::kFp8Packed, 512, Numerics::kExact},
                                           Case{EntryFormat::kBf16, 128, Numerics::kReference},
                                           Case{EntryFormat::kBf16, 128, Numerics::kExact},
                                           Case{EntryFormat::kFp8Index, 128, Numerics::kReference},
                                           Case{EntryFormat::kFp8Index, 128, Numerics::kExact},
                                           Case{EntryFormat::kFp4Index, 128, Numerics::kReference},
                                           Case{EntryFormat::kFp4Index, 128, Numerics::kExact}));

TEST(StoreEntriesLosslessTest, ReferenceNumericsMakeTheCompactFormatsLossless) {
  for (const EntryFormat format : {EntryFormat::kFp8Packed, EntryFormat::kFp4Index}) {
    const int head_dim = format == EntryFormat::kFp8Packed ? 512 : 128;
    const auto pooled = RandomValues<BFloat16>(3 * head_dim, 3);
    const auto weight = RandomValues<float>(head_dim, 4);
    const RopeTable rope({.theta = 160000, .factor = 16});
    TestPages compact(format, head_dim, 2, 3);
    TestPages plain(EntryFormat::kBf16, head_dim, 2, 3);
    StoreEntriesParams params = {.pooled = View(pooled, 3, head_dim),
                                 .ratio = 4,
                                 .weight = weight,
                                 .rope = &rope,
                                 .pool = compact.pool,
                                 .pages = compact.table};
    StoreEntries(params, TestPool());
    params.pool = plain.pool;
    params.pages = plain.table;
    StoreEntries(params, TestPool());
    for (int64_t entry = 0; entry < 3; ++entry) {
      std::vector<BFloat16> a(head_dim), b(head_dim);
      DecodeEntry(compact.pool, compact.table, entry, a.data());
      DecodeEntry(plain.pool, plain.table, entry, b.data());
      EXPECT_EQ(Floats(a), Floats(b));
    }
  }
}

}  // namespace
}  // namespace baton::kernels
