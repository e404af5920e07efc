#include "kernels/cuda/compressor.h"

#include "kernels/compressor.h"
#include "kernels/cuda/rope.h"
#include "kernels/entry_store.h"
#include "kernels/window_kv.h"
#include "tests/kernels/cuda/pages.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kSlots = 6;
constexpr int kSpareRows = 8;

const RopeTable& Table() {
  static const RopeTable table({.theta = 160000, .factor = 16});
  return table;
}

struct Kind {
  int ratio;
  int head_dim;
  EntryFormat format;
  Numerics numerics;
  const char* name;
};

// One compressor's inputs, run on both sides.
class CompressTest : public CudaTest, public testing::WithParamInterface<Kind> {
 protected:
  static const Kind& kind() { return GetParam(); }
  static bool overlapping() { return kind().ratio == kCsaRatio; }
  static int width() { return kind().head_dim * (overlapping() ? 4 : 2); }
  static int ring_rows() { return (overlapping() ? 2 * kCsaRatio : kHcaRatio) + kSpareRows; }
  static int entries(const TestBatch::Sequence& s) { return (s.start + s.rows) / kind().ratio; }

  static void Check(std::vector<TestBatch::Sequence> sequences, int padding) {
    int most = 1;
    for (const auto& s : sequences) most = std::max(most, entries(s));
    TwinPages pages(kind().format, kind().head_dim, overlapping() ? 64 : 4,
                    static_cast<int>(sequences.size()), most);
    for (size_t i = 0; i < sequences.size(); ++i) sequences[i].pages = pages.ids(i);
    const TestBatch batch(sequences, padding);

    const auto weight = RandomValues<BFloat16>(kind().head_dim, 11);
    const auto bias = RandomValues<float>(int64_t{kind().ratio} * width() / 2, 12);
    const auto chunk = RandomValues<float>(int64_t{batch.view().rows} * width(), 13, 3.0f);
    auto rings = RandomValues<float>(int64_t{kSlots} * ring_rows() * width(), 14, 3.0f);
    const DeviceArray<BFloat16> device_weight(weight);
    const DeviceArray<float> device_bias(bias), device_chunk(chunk), device_rings(rings);
    DeviceArray<float> rope(int64_t{most} * kRopeDim);
    FillRopeTable(FrequenciesOf(Table()), kind().ratio, most, rope.get(), TestStream().get());
    Compress(
        {.batch = batch.view(),
         .ratio = kind().ratio,
         .chunk = {device_chunk.get(), batch.view().rows, width()},
         .bias = device_bias.get(),
         .ring = {.data = device_rings.get(),
                  .rows = ring_rows(),
                  .width = width(),
                  .slot_stride = int64_t{ring_rows()} * width()},
         .weight = device_weight.get(),
         .rope = {.frequencies = FrequenciesOf(Table()), .step = kind().ratio, .table = rope.get()},
         .numerics = kind().numerics,
         .pool = pages.device_pool()},
        TestStream().get());
    TestStream().Synchronize();

    std::vector<float> biased = chunk;
    int64_t row = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto& s = sequences[i];
      const MatrixView<float> rows(biased.data() + row * width(), s.rows, width());
      const RowRing<float> ring = {rings.data() + int64_t{s.slot} * ring_rows() * width(),
                                   ring_rows(), width()};
      row += s.rows;
      RunOnCpu(s, rows, View(bias, kind().ratio, width() / 2), ring, Floats(weight), pages,
               static_cast<int>(i));
      ComparePages(pages, static_cast<int>(i), s);
    }
    EXPECT_EQ(CountDifferent(device_rings.Download(), rings), 0) << "ring elements differ";
  }

 private:
  static void RunOnCpu(const TestBatch::Sequence& s, MatrixView<float> rows,
                       MatrixView<const float> bias, RowRing<float> ring,
                       const std::vector<float>& weight, TwinPages& pages, int sequence) {
    if (s.rows == 0) return;
    AddPositionBias(rows, bias, s.start);
    const int64_t first_entry = s.start / kind().ratio;
    const int64_t count = entries(s) - first_entry;
    std::vector<BFloat16> pooled(count * kind().head_dim);
    PoolEntries({.ratio = kind().ratio,
                 .head_dim = kind().head_dim,
                 .first_entry = first_entry,
                 .chunk_start = s.start,
                 .chunk = rows,
                 .ring = ring,
                 .pooled = View(pooled, count, kind().head_dim)},
                TestPool());
    StoreEntries({.pooled = View(pooled, count, kind().head_dim),
                  .first_entry = first_entry,
                  .ratio = kind().ratio,
                  .weight = weight,
                  .rope = &Table(),
                  .numerics = kind().numerics,
                  .pool = pages.host_pool(),
                  .pages = pages.host_table(sequence)},
                 TestPool());
    WriteRows(MatrixView<const float>(rows), s.start, ring);
  }

  // Exponentials differ in the last bit, so that a pooled value may round the other way, and now
  // and then its quantised one too.
  static void ComparePages(const TwinPages& pages, int sequence, const TestBatch::Sequence& s) {
    const int first = s.start / kind().ratio;
    const auto begin = int64_t{first} * kind().head_dim;
    std::vector<BFloat16> actual = pages.DeviceValues(sequence, entries(s));
    std::vector<BFloat16> expected = pages.HostValues(sequence, entries(s));
    actual.erase(actual.begin(), actual.begin() + begin);
    expected.erase(expected.begin(), expected.begin() + begin);
    if (expected.empty()) return;
    EXPECT_LT(RelativeError(actual, expected), 5e-3) << "sequence " << sequence;
    EXPECT_LE(CountDifferent(actual, expected), 2 + static_cast<int64_t>(expected.size()) / 200)
        << "sequence " << sequence;
  }
};

TEST_P(CompressTest, DecodingRowsAtEveryPhase) {
  std::vector<TestBatch::Sequence> sequences;
  const int r = kind().ratio;
  const int starts[kSlots] = {r - 1, 2 * r - 1, 10 * r - 1, 10 * r, 10 * r + 1, 0};
  for (int i = 0; i < kSlots; ++i) {
    sequences.push_back({.start = starts[i], .rows = 1, .slot = kSlots - 1 - i});
  }
  Check(sequences, 3);
}

TEST_P(CompressTest, VerificationRowsAndEmptySequences) {
  const int r = kind().ratio;
  Check({{.start = 3 * r - 3, .rows = 8, .slot = 1},
         {.start = 0, .rows = 0, .slot = 0},
         {.start = 0, .rows = 7, .slot = 2},
         {.start = 5 * r - 1, .rows = 2, .slot = 5}},
        1);
}

TEST_P(CompressTest, ChunksThatOverwriteTheWholeRing) {
  const int r = kind().ratio;
  Check({{.start = 0, .rows = 3 * r + 1, .slot = 0},
         {.start = 2 * r + 1, .rows = 301, .slot = 3},
         {.start = 4 * r, .rows = 1, .slot = 4}},
        0);
}

TEST_P(CompressTest, LongChunk) { Check({{.start = 64, .rows = 2500, .slot = 2}}, 5); }

TEST_P(CompressTest, PaddingAlone) { Check({}, 4); }

INSTANTIATE_TEST_SUITE_P(
    All, CompressTest,
    testing::Values(Kind{4, 128, EntryFormat::kBf16, Numerics::kReference, "IndexBf16"},
                    Kind{4, 128, EntryFormat::kFp8Index, Numerics::kExact, "IndexFp8Exact"},
                    Kind{4, 128, EntryFormat::kFp4Index, Numerics::kReference, "IndexFp4"},
                    Kind{4, 512, EntryFormat::kBf16, Numerics::kExact, "CsaBf16Exact"},
                    Kind{4, 512, EntryFormat::kFp8Packed, Numerics::kReference, "CsaFp8"},
                    Kind{128, 512, EntryFormat::kBf16, Numerics::kReference, "HcaBf16"},
                    Kind{128, 512, EntryFormat::kFp8Packed, Numerics::kExact, "HcaFp8Exact"}),
    [](const testing::TestParamInfo<Kind>& info) { return std::string(info.param.name); });

TEST(CompressDeathTest, RatioWithoutAKernelIsRefused) {
  CompressParams params;
  params.ratio = 128;
  params.pool.head_dim = 128;
  EXPECT_DEATH(Compress(params, nullptr), "no kernel for ratio 128 with head_dim 128");
}

}  // namespace
}  // namespace baton::kernels::cuda
