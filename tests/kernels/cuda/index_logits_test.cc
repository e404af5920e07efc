#include "kernels/cuda/index_logits.h"

#include <cmath>

#include "kernels/cuda/variants.h"
#include "tests/kernels/cuda/index_case.h"

namespace baton::kernels::cuda {
namespace {

using Variant = void (*)(const IndexLogitsParams&, CUstream_st*);

// Every variant on every format.
struct Subject {
  const char* name;
  Variant run;
  EntryFormat format;
};

class IndexLogitsTest : public CudaTest, public testing::WithParamInterface<Subject> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam().run == IndexLogitsSm90a && !HasSm90a()) GTEST_SKIP() << "no wgmma here";
  }
  std::vector<float> Run(const IndexLogitsParams& params, const DeviceArray<float>& scores) {
    GetParam().run(params, TestStream().get());
    return scores.Download();
  }
};

INSTANTIATE_TEST_SUITE_P(
    , IndexLogitsTest,
    testing::Values(Subject{"Sm90aBf16", IndexLogitsSm90a, EntryFormat::kBf16},
                    Subject{"Sm90aFp8", IndexLogitsSm90a, EntryFormat::kFp8Index},
                    Subject{"Sm90aFp4", IndexLogitsSm90a, EntryFormat::kFp4Index},
                    Subject{"PortableBf16", IndexLogitsPortable, EntryFormat::kBf16},
                    Subject{"PortableFp8", IndexLogitsPortable, EntryFormat::kFp8Index},
                    Subject{"PortableFp4", IndexLogitsPortable, EntryFormat::kFp4Index}),
    [](const auto& info) { return info.param.name; });

// Scores of visible entries match the CPU op, all others stay untouched. The sums have other
// orders, and tensor cores cut off bits below their accumulator.
constexpr double kTolerance = 3e-5;
constexpr float kUntouched = 777.0f;

void ExpectScores(const std::vector<float>& actual, const std::vector<float>& expected) {
  std::vector<float> visible_actual;
  std::vector<float> visible_expected;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == kUntouched) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " must not be written";
      if (!std::isnan(actual[i])) return;
      continue;
    }
    visible_actual.push_back(actual[i]);
    visible_expected.push_back(expected[i]);
  }
  EXPECT_LT(RelativeError(visible_actual, visible_expected), kTolerance)
      << "over " << visible_expected.size() << " scores";
}

TEST_P(IndexLogitsTest, OneRowASequence) {
  IndexCase c(64, GetParam().format, {{0, 1}, {2, 1}, {3, 1}, {254, 1}, {255, 1}, {9000, 1}}, 2, 1);
  DeviceArray<float> scores(c.batch.view().rows * 2304);
  ExpectScores(Run(c.Params(scores.get(), 2304), scores), c.Expected(2304, kUntouched));
}

TEST_P(IndexLogitsTest, TwoRowsASequence) {
  IndexCase c(64, GetParam().format, {{1021, 2}, {600, 1}, {5, 2}}, 1, 2);
  DeviceArray<float> scores(c.batch.view().rows * 512);
  ExpectScores(Run(c.Params(scores.get(), 512), scores), c.Expected(512, kUntouched));
}

TEST_P(IndexLogitsTest, TilesOfRowsMayMeetSeveralSequences) {
  IndexCase c(64, GetParam().format, {{0, 7}, {2500, 6}, {100, 1}, {4094, 9}, {700, 3}}, 3, 3);
  DeviceArray<float> scores(c.batch.view().rows * 1100);
  ExpectScores(Run(c.Params(scores.get(), 1100), scores), c.Expected(1100, kUntouched));
}

TEST_P(IndexLogitsTest, FewerHeads) {
  for (const int heads : {4, 9, 32}) {
    IndexCase c(heads, GetParam().format, {{250, 12}, {77, 1}}, 0, 4);
    DeviceArray<float> scores(c.batch.view().rows * 128);
    ExpectScores(Run(c.Params(scores.get(), 128), scores), c.Expected(128, kUntouched));
  }
}

TEST_P(IndexLogitsTest, PartOfTheRows) {
  IndexCase c(64, GetParam().format, {{3000, 5}, {800, 20}}, 0, 5);
  DeviceArray<float> scores(10 * 768);
  IndexLogitsParams params = c.Params(scores.get(), 768);
  params.first_row = 3;
  params.rows = 10;
  std::vector<float> expected = c.Expected(768, kUntouched);
  expected = {expected.begin() + 3 * 768, expected.begin() + 13 * 768};
  ExpectScores(Run(params, scores), expected);
}

TEST_P(IndexLogitsTest, DoesNotDependOnTheBatch) {
  IndexCase c(64, GetParam().format, {{2000, 8}}, 0, 6);
  DeviceArray<float> scores(8 * 512);
  const std::vector<float> together = Run(c.Params(scores.get(), 512), scores);
  for (int max_rows = 1; max_rows <= 2; ++max_rows) {
    DeviceArray<float> apart(8 * 512);
    IndexLogitsParams params = c.Params(apart.get(), 512);
    params.batch.max_rows = max_rows;  // chooses narrower tiles
    EXPECT_EQ(CountDifferent(Run(params, apart), together), 0);
  }
}

TEST_P(IndexLogitsTest, NaNInAKeyShows) {
  IndexCase c(64, GetParam().format, {{1000, 5}}, 0, 7);
  if (GetParam().format != EntryFormat::kBf16) GTEST_SKIP() << "stores mark NaN in their own way";
  std::vector<BFloat16> key(kIndexDim, BFloat16(1.0f));
  key[77] = BFloat16(std::nanf(""));
  c.keys.Set(0, 100, key.data());
  c.device_keys = c.keys.Upload();
  DeviceArray<float> scores(5 * 256);
  scores.Fill(0);
  const std::vector<float> actual = Run(c.Params(scores.get(), 256), scores);
  for (int row = 0; row < 5; ++row) {
    for (int entry = 0; entry < 250; ++entry) {
      EXPECT_EQ(std::isnan(actual[row * 256 + entry]), entry == 100) << row << " " << entry;
    }
  }
}

// Page ids whose bytes lie beyond 2^31, scores beyond 2^31 elements: the last rows of a chunk of
// 8,192 at a context of a million tokens.
TEST_F(CudaTest, IndexLogitsOfAMillionTokensOffsets) {
  constexpr int kRows = 8192;
  constexpr int kEntries = 1 << 18;
  constexpr int kPages = kEntries / kTestEntriesPerPage;
  constexpr int32_t kFirstPage = 140000;
  if (CurrentDevice().memory_bytes < int64_t{16} << 30) GTEST_SKIP() << "needs 12 GB";
  constexpr int64_t kPageBytes = 64 * 256;
  const auto keys = RandomValues<BFloat16>(int64_t{kEntries} * kIndexDim, 8);
  DeviceArray<std::byte> pool((kFirstPage + kPages) * kPageBytes);
  CopyAsync(pool.get() + kFirstPage * kPageBytes, keys.data(), kPages * kPageBytes,
            TestStream().get());
  std::vector<int32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), kFirstPage);
  TestBatch batch({{.start = 4 * kEntries - kRows, .rows = kRows, .slot = 0, .pages = pages}}, 0);
  const auto q = RandomValues<BFloat16>(int64_t{kRows} * 64 * kIndexDim, 9);
  const std::vector<BFloat16> w(kRows * 64, BFloat16(0.01f));
  DeviceArray<BFloat16> device_q(q);
  DeviceArray<BFloat16> device_w(w);
  DeviceArray<float> scores(int64_t{kRows} * kEntries);
  for (const Variant run : {IndexLogitsSm90a, IndexLogitsPortable}) {
    scores.Fill(0xff);
    run({.batch = batch.view(),
         .first_row = 0,
         .rows = kRows,
         .q = device_q.get(),
         .w = device_w.get(),
         .heads = 64,
         .keys = {.data = pool.get(),
                  .format = EntryFormat::kBf16,
                  .head_dim = kIndexDim,
                  .entries_per_page = kTestEntriesPerPage,
                  .page_bytes = kPageBytes},
         .max_entries = kEntries,
         .min_entries = kEntries - 1,
         .scores = scores.get(),
         .stride = kEntries},
        TestStream().get());
    const int64_t row = kRows - 1;
    const std::vector<float> actual = scores.Download(row * kEntries, kEntries);
    for (int entry = 0; entry < kEntries; entry += 997) {
      double expected = 0;
      for (int head = 0; head < 64; ++head) {
        double dot = 0;
        for (int i = 0; i < kIndexDim; ++i) {
          dot += static_cast<double>(static_cast<float>(q[(row * 64 + head) * kIndexDim + i])) *
                 static_cast<float>(keys[int64_t{entry} * kIndexDim + i]);
        }
        expected += std::max(dot, 0.0) * static_cast<float>(w[0]);
      }
      EXPECT_NEAR(actual[entry], expected, 1e-3 * std::fabs(expected) + 1e-4) << entry;
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
