#include "kernels/cuda/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cuda/variants.h"
#include "kernels/sparse_attention.h"
#include "tests/kernels/cuda/entry_pool.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kDim = 512;
constexpr int kRingRows = 136;
constexpr int kSlots = 8;
// Probabilities are rounded to BF16 against a running maximum instead of the final one, and the
// results are BF16.
constexpr double kTolerance = 3e-3;

struct Layer {
  int ratio = 0;
  EntryFormat format = EntryFormat::kBf16;
  int k = 0;  // 0: every visible entry
  int window = 128;

  int per_page() const { return ratio == 4 ? 64 : 2; }
};

struct Sequence {
  int32_t start;
  int32_t rows;
};

using Variant = void (*)(const SparseAttentionParams&, CUstream_st*);

class SparseAttentionTest : public CudaTest, public testing::WithParamInterface<Variant> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam() == SparseAttentionSm90a && !HasSm90a()) GTEST_SKIP() << "no wgmma here";
  }
};

INSTANTIATE_TEST_SUITE_P(, SparseAttentionTest,
                         testing::Values(SparseAttentionSm90a, SparseAttentionPortable),
                         [](const auto& info) { return info.index == 0 ? "Sm90a" : "Portable"; });

// Inputs of a batch on the host and on the device; the CPU op's result.
struct Case {
  Case(int heads, const Layer& layer, const std::vector<Sequence>& sequences, int padding,
       uint32_t seed)
      : heads(heads),
        layer(layer),
        sequences(sequences),
        pool(layer.format, kDim, layer.per_page(), Entries(layer, sequences), seed),
        batch(Rows(), padding),
        rows(batch.view().rows),
        q(RandomValues<BFloat16>(int64_t{rows} * heads * kDim, seed + 1)),
        chunk(RandomValues<BFloat16>(int64_t{rows} * kDim, seed + 2)),
        rings(RandomValues<BFloat16>(int64_t{kSlots} * kRingRows * kDim, seed + 3)),
        sinks(RandomValues<float>(heads, seed + 4)) {
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t entries = Entries(layer, sequences)[s];
      const auto values = RandomValues<BFloat16>(entries * kDim, seed + 5 + static_cast<int>(s));
      for (int64_t i = 0; i < entries; ++i) {
        pool.Set(static_cast<int>(s), i, values.data() + i * kDim);
      }
    }
    Select(seed);
  }

  static std::vector<int64_t> Entries(const Layer& layer, const std::vector<Sequence>& sequences) {
    std::vector<int64_t> entries;
    for (const Sequence& s : sequences) {
      entries.push_back(layer.ratio == 0 ? 0 : (s.start + s.rows) / layer.ratio);
    }
    return entries;
  }
  std::vector<TestBatch::Sequence> Rows() const {
    std::vector<TestBatch::Sequence> result;
    for (size_t s = 0; s < sequences.size(); ++s) {
      result.push_back({.start = sequences[s].start,
                        .rows = sequences[s].rows,
                        .slot = static_cast<int32_t>((s * 3 + 1) % kSlots),
                        .pages = pool.pages(static_cast<int>(s))});
    }
    return result;
  }

  // For every row a random ascending choice among what it sees, as many as fit.
  void Select(uint32_t seed) {
    if (layer.k == 0) return;
    selected.assign(int64_t{rows} * layer.k, -1);
    std::mt19937 engine(seed);
    int64_t row = 0;
    for (const Sequence& s : sequences) {
      for (int i = 0; i < s.rows; ++i, ++row) {
        std::vector<int32_t> all((s.start + i + 1) / layer.ratio);
        std::iota(all.begin(), all.end(), 0);
        std::sample(all.begin(), all.end(), selected.begin() + row * layer.k, layer.k, engine);
      }
    }
  }

  std::vector<BFloat16> Expected() const {
    std::vector<BFloat16> out(q.size());
    std::vector<kernels::SparseAttentionParams> all;
    int64_t row = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t count = sequences[s].rows;
      const int64_t slot = (s * 3 + 1) % kSlots;
      kernels::SparseAttentionParams params = {
          .q = View(q, rows, int64_t{heads} * kDim).Rows(row, count),
          .heads = heads,
          .sinks = sinks,
          .scale = 1.0f / std::sqrt(static_cast<float>(kDim)),
          .start = sequences[s].start,
          .window = layer.window,
          .chunk = View(chunk, rows, kDim).Rows(row, count),
          .out = View(out, rows, int64_t{heads} * kDim).Rows(row, count)};
      params.ring = {const_cast<BFloat16*>(rings.data()) + slot * kRingRows * kDim, kRingRows,
                     kDim};
      params.ratio = layer.ratio;
      params.pool = pool.host();
      params.pages = pool.table(static_cast<int>(s));
      if (layer.k > 0) params.selected = View(selected, rows, layer.k).Rows(row, count);
      all.push_back(params);
      row += count;
    }
    kernels::SparseAttention(all, TestPool());
    out.resize(row * heads * kDim);
    return out;
  }

  // The same where the results take the place of the queries.
  std::vector<BFloat16> RunInPlace(Variant variant, bool fixed_parts) {
    std::vector<BFloat16> result =
        Launch(variant, batch.view(), 0, sequences, fixed_parts, /*in_place=*/true);
    int64_t real = 0;
    for (const Sequence& s : sequences) real += s.rows;
    result.resize(real * heads * kDim);
    return result;
  }
  // The device's result for all rows that are not padded; padded ones must stay untouched.
  std::vector<BFloat16> Run(Variant variant, bool fixed_parts = false) {
    std::vector<BFloat16> result = Launch(variant, batch.view(), 0, sequences, fixed_parts);
    int64_t real = 0;
    for (const Sequence& s : sequences) real += s.rows;
    real *= int64_t{heads} * kDim;
    for (size_t i = real; i < result.size(); ++i) EXPECT_EQ(result[i].bits, 0xffff);
    result.resize(real);
    return result;
  }
  // Of one sequence in a batch of its own.
  std::vector<BFloat16> RunAlone(Variant variant, size_t s, bool fixed_parts) {
    const TestBatch alone({Rows()[s]}, 0);
    int64_t first_row = 0;
    for (size_t i = 0; i < s; ++i) first_row += sequences[i].rows;
    return Launch(variant, alone.view(), first_row, {sequences[s]}, fixed_parts);
  }

 private:
  std::vector<BFloat16> Launch(Variant variant, const BatchView& view, int64_t first_row,
                               const std::vector<Sequence>& members, bool fixed_parts,
                               bool in_place = false) {
    const int64_t width = int64_t{heads} * kDim;
    DeviceArray<BFloat16> device_q(q);
    DeviceArray<BFloat16> device_chunk(chunk);
    DeviceArray<BFloat16> device_rings(rings);
    DeviceArray<float> device_sinks(sinks);
    DeviceArray<int32_t> device_selected(selected);
    DeviceArray<BFloat16> out(view.rows * width);
    SparseAttentionParams params = {.batch = view,
                                    .q = device_q.get() + first_row * width,
                                    .heads = heads,
                                    .sinks = device_sinks.get(),
                                    .scale = 1.0f / std::sqrt(static_cast<float>(kDim)),
                                    .window = layer.window,
                                    .fixed_parts = fixed_parts,
                                    .chunk = device_chunk.get() + first_row * kDim,
                                    .rings = {.data = device_rings.get(),
                                              .rows = kRingRows,
                                              .width = kDim,
                                              .slot_stride = kRingRows * kDim}};
    params.ratio = layer.ratio;
    params.pool = pool.Upload();
    const auto entries = Entries(layer, members);
    const int64_t most = *std::max_element(entries.begin(), entries.end());
    params.max_entries = static_cast<int>(layer.k > 0 ? std::min<int64_t>(layer.k, most) : most);
    params.selected = layer.k > 0 ? device_selected.get() + first_row * layer.k : nullptr;
    params.k = layer.k;
    params.out = in_place ? device_q.get() : out.get();
    DeviceArray<std::byte> scratch(SparseAttentionScratchBytes(params));
    params.scratch = reinterpret_cast<float*>(scratch.get());
    variant(params, TestStream().get());
    return in_place ? device_q.Download() : out.Download();
  }

 public:
  int heads;
  Layer layer;
  std::vector<Sequence> sequences;
  EntryPool pool;
  TestBatch batch;
  int rows;
  std::vector<BFloat16> q;
  std::vector<BFloat16> chunk;
  std::vector<BFloat16> rings;
  std::vector<float> sinks;
  std::vector<int32_t> selected;
};

void ExpectLikeCpu(Variant variant, int heads, const Layer& layer,
                   const std::vector<Sequence>& sequences, int padding, uint32_t seed) {
  Case c(heads, layer, sequences, padding, seed);
  EXPECT_LT(RelativeError(c.Run(variant), c.Expected()), kTolerance)
      << heads << " heads, ratio " << layer.ratio << ", k " << layer.k << ", format "
      << static_cast<int>(layer.format) << ", " << sequences.size() << " sequences";
}

// Positions around the edges of window, tile, ring and page; few rows, so that they are split.
const std::vector<Sequence> kFewRows = {{0, 1},   {62, 2},  {63, 1},  {126, 3},
                                        {255, 1}, {256, 8}, {1023, 2}};
const std::vector<Sequence> kManyRows = {{0, 70}, {130, 40}, {2000, 33}, {77, 1}};

TEST_P(SparseAttentionTest, WindowOnly) {
  ExpectLikeCpu(GetParam(), 64, {}, kFewRows, 2, 1);
  ExpectLikeCpu(GetParam(), 64, {}, kManyRows, 1, 2);
}

TEST_P(SparseAttentionTest, EveryVisibleEntry) {
  for (const EntryFormat format : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    ExpectLikeCpu(GetParam(), 64, {.ratio = 128, .format = format}, kFewRows, 2, 3);
    ExpectLikeCpu(GetParam(), 64, {.ratio = 128, .format = format}, kManyRows, 1, 4);
    ExpectLikeCpu(GetParam(), 64, {.ratio = 128, .format = format}, {{40000, 2}, {127, 1}}, 0, 5);
  }
}

TEST_P(SparseAttentionTest, SelectedEntries) {
  for (const EntryFormat format : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    ExpectLikeCpu(GetParam(), 64, {.ratio = 4, .format = format, .k = 512}, kFewRows, 2, 6);
    ExpectLikeCpu(GetParam(), 64, {.ratio = 4, .format = format, .k = 200}, kManyRows, 1, 7);
    ExpectLikeCpu(GetParam(), 64, {.ratio = 4, .format = format, .k = 2048}, {{9000, 1}}, 0, 8);
  }
}

// Rows of one part and of several, more than one piece of work a block, two blocks a row.
TEST_P(SparseAttentionTest, ResultsMayTakeThePlaceOfTheQueries) {
  for (const int heads : {8, 64, 128}) {
    for (const auto& [layer, sequences] :
         {std::pair{Layer{}, kManyRows}, std::pair{Layer{.ratio = 128}, kFewRows},
          std::pair{Layer{.ratio = 4, .k = 512}, kManyRows},
          std::pair{Layer{.ratio = 4, .k = 512}, kFewRows}}) {
      Case c(heads, layer, sequences, 1, 12);
      for (const bool fixed_parts : {false, true}) {
        const std::vector<BFloat16> apart = c.Run(GetParam(), fixed_parts);
        EXPECT_EQ(CountDifferent(c.RunInPlace(GetParam(), fixed_parts), apart), 0)
            << heads << " heads, ratio " << layer.ratio << ", fixed parts " << fixed_parts;
      }
    }
  }
}

TEST_P(SparseAttentionTest, OtherHeadCounts) {
  for (const int heads : {4, 8, 20, 128}) {
    ExpectLikeCpu(GetParam(), heads, {.ratio = 4, .k = 64}, {{300, 3}, {11, 1}}, 1, 9);
  }
}

TEST_P(SparseAttentionTest, OtherWindows) {
  for (const int window : {1, 8, 100}) {
    ExpectLikeCpu(GetParam(), 64, {.ratio = 4, .k = 16, .window = window},
                  {{90, 5}, {0, 3}, {250, 2}}, 0, 10);
  }
}

// Rows of one part and of several, launches of all rows and of some at a time.
TEST_P(SparseAttentionTest, WithFixedPartsARowDoesNotDependOnTheBatch) {
  const std::vector<Sequence> decoding = {{0, 1},     {63, 2},    {5000, 1},
                                          {65535, 1}, {65663, 1}, {300000, 3}};
  const std::vector<Sequence> mixed = {{0, 70}, {81000, 2}, {130, 40}, {2000, 33}, {9000, 1}};
  for (const EntryFormat format : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    for (const auto& [layer, sequences] :
         {std::pair{Layer{}, mixed}, std::pair{Layer{.ratio = 128, .format = format}, decoding},
          std::pair{Layer{.ratio = 128, .format = format}, mixed},
          std::pair{Layer{.ratio = 4, .format = format, .k = 512}, mixed},
          std::pair{Layer{.ratio = 4, .format = format, .k = 2048}, mixed}}) {
      Case c(64, layer, sequences, 2, 13);
      const std::vector<BFloat16> together = c.Run(GetParam(), /*fixed_parts=*/true);
      EXPECT_LT(RelativeError(together, c.Expected()), kTolerance);
      auto begin = together.begin();
      for (size_t s = 0; s < sequences.size(); ++s) {
        const auto end = begin + int64_t{sequences[s].rows} * c.heads * kDim;
        EXPECT_EQ(CountDifferent(c.RunAlone(GetParam(), s, true), {begin, end}), 0)
            << "ratio " << layer.ratio << ", k " << layer.k << ", position " << sequences[s].start;
        begin = end;
      }
    }
  }
}

// A block computes several pieces, of one tile, then of two.
TEST_P(SparseAttentionTest, MorePiecesThanBlocks) {
  ExpectLikeCpu(GetParam(), 64, {}, {{0, 300}}, 0, 13);
}

// The largest score grows from tile to tile, by less and by more than makes accumulators follow.
TEST_P(SparseAttentionTest, GrowingScores) {
  for (const float factor : {4.0f, 12.0f}) {
    Case c(64, {.ratio = 4, .k = 512}, {{3000, 2}, {5000, 1}}, 0, 14);
    for (BFloat16& value : c.q) value = BFloat16(static_cast<float>(value) * factor);
    EXPECT_LT(RelativeError(c.Run(GetParam()), c.Expected()), kTolerance) << factor;
  }
}

TEST_P(SparseAttentionTest, LargeScoresDoNotOverflow) {
  Case c(64, {.ratio = 4, .k = 64}, {{1000, 2}}, 0, 11);
  for (BFloat16& value : c.q) value = BFloat16(static_cast<float>(value) * 100.0f);
  EXPECT_LT(RelativeError(c.Run(GetParam()), c.Expected()), kTolerance);
}

TEST_P(SparseAttentionTest, NaNInACandidateShowsInEveryHead) {
  for (const std::vector<Sequence>& sequences : {kFewRows, kManyRows}) {
    Case c(64, {.ratio = 4, .k = 64}, sequences, 0, 12);
    std::vector<BFloat16> entry(kDim, BFloat16(1.0f));
    entry[5] = BFloat16(std::nanf(""));
    c.pool.Set(2, 3, entry.data());
    const std::vector<BFloat16> out = c.Run(GetParam());
    int64_t row = sequences[0].rows + sequences[1].rows;
    for (int i = 0; i < sequences[2].rows; ++i, ++row) {
      const auto begin = c.selected.begin() + row * 64;
      const bool attends = std::find(begin, begin + 64, 3) != begin + 64;
      for (int head = 0; head < 64; ++head) {
        const float value = static_cast<float>(out[(row * 64 + head) * kDim + 5]);
        EXPECT_EQ(std::isnan(value), attends) << "row " << row << ", head " << head;
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
