#include "kernels/cuda/index_select.h"

#include <map>
#include <string>

#include <gmock/gmock.h>

#include "kernels/cuda/index_query.h"
#include "kernels/cuda/topk.h"
#include "kernels/rope.h"
#include "tests/kernels/cuda/index_case.h"
#include "tests/kernels/cuda/index_mutants.h"
#include "tests/kernels/selection_gate.h"

namespace baton::kernels::cuda {
namespace {

class IndexSelectTest : public CudaTest {};

TEST_F(IndexSelectTest, TakesTheBestOfEachRowWhateverTheScratch) {
  constexpr int kTopK = 64;
  IndexCase c(64, EntryFormat::kBf16, {{0, 9}, {250, 14}, {4000, 21}, {1500, 1}}, 3, 11);
  const int rows = c.batch.view().rows;
  const int64_t stride = (c.max_entries() + 3) / 4 * 4;
  DeviceArray<float> scores(rows * stride);
  IndexLogits(c.Params(scores.get(), stride), TestStream().get());
  const std::vector<float> host_scores = scores.Download();
  std::vector<int32_t> expected(rows * kTopK, -1);
  int64_t row = 0;
  for (const auto& sequence : c.sequences) {
    for (int i = 0; i < sequence.rows; ++i, ++row) {
      const auto visible = static_cast<size_t>((sequence.start + i + 1) / 4);
      kernels::TopK({host_scores.data() + row * stride, visible},
                    {expected.data() + row * kTopK, kTopK});
    }
  }
  for (const int64_t rows_of_scratch : {1, 3, 8, 1000}) {
    DeviceArray<float> scratch(std::min<int64_t>(rows, rows_of_scratch) * stride);
    DeviceArray<int32_t> selected(rows * kTopK);
    cuda::IndexSelect({.batch = c.batch.view(),
                       .q = c.device_q.get(),
                       .w = c.device_w.get(),
                       .heads = c.heads,
                       .keys = c.device_keys,
                       .max_entries = c.max_entries(),
                       .selected = selected.get(),
                       .k = kTopK,
                       .scratch = scratch.get(),
                       .scratch_bytes = scratch.size() * 4},
                      TestStream().get());
    EXPECT_EQ(CountDifferent(selected.Download(), expected), 0) << rows_of_scratch;
  }
}

TEST_F(IndexSelectTest, ScratchIsBounded) {
  EXPECT_EQ(IndexSelectScratchBytes(1, 2047), 2048 * 4);
  EXPECT_EQ(IndexSelectScratchBytes(8192, 1 << 18), kIndexSelectScratchBytes);
  EXPECT_LE(kIndexSelectScratchBytes, int64_t{512} << 20);
}

// The gate: how much of a selection in FP32 the whole path - query, store, logits, top-k - keeps.

constexpr int kHeads = 64;
constexpr int kRows = kGateRows;
constexpr int kTopK = kGateTopK;

// Inputs of one size, and what FP32 selects from them.
struct Gate {
  Gate(int64_t entries, Numerics numerics)
      : entries(entries),
        numerics(numerics),
        keys(WithOutlierChannels(entries, 21)),
        q(WithOutlierChannels(kRows * kHeads, 22)),
        w(RandomValues<BFloat16>(kRows * kHeads, 23)) {
    std::vector<BFloat16> reference_q = q;
    std::vector<BFloat16> reference_w = w;
    ScaleIndexWeights(View(reference_w, kRows, kHeads));
    if (numerics == Numerics::kReference) Rotate(reference_q);
    // Exact mode is measured against vectors that were never rotated nor rounded: the transform is
    // orthonormal, so the scores are the same.
    std::vector<BFloat16> reference_keys = keys;
    if (numerics == Numerics::kReference) Rotate(reference_keys);
    EntryPool pool(EntryFormat::kBf16, kIndexDim, kTestEntriesPerPage, {entries}, 1);
    for (int64_t i = 0; i < entries; ++i) pool.Set(0, i, reference_keys.data() + i * kIndexDim);
    expected.resize(kRows * kTopK);
    const kernels::IndexSelectParams params = {
        .q = View(std::as_const(reference_q), kRows, int64_t{kHeads} * kIndexDim),
        .w = View(std::as_const(reference_w), kRows, kHeads),
        .heads = kHeads,
        .start = 4 * entries - kRows,
        .keys = pool.host(),
        .pages = pool.table(0),
        .selected = View(expected, kRows, kTopK)};
    kernels::IndexSelect({&params, 1}, TestPool());
  }

  void Rotate(std::vector<BFloat16>& vectors) const {
    for (size_t i = 0; i < vectors.size(); i += kIndexDim) {
      Hadamard128(vectors.data() + i);
      if (numerics == Numerics::kReference) {
        FakeQuantFp4(vectors.data() + i, vectors.data() + i, kIndexDim);
      }
    }
  }

  // The share of the expected entries that the device selects.
  double Overlap(EntryFormat format, const IndexMutant& mutant) const {
    std::vector<BFloat16> stored = keys;
    Rotate(stored);
    EntryPool pool(format, kIndexDim, kTestEntriesPerPage, {entries}, 2);
    for (int64_t i = 0; i < entries; ++i) pool.Set(0, i, stored.data() + i * kIndexDim);
    TestBatch batch({{.start = static_cast<int32_t>(4 * entries - kRows),
                      .rows = kRows,
                      .slot = 0,
                      .pages = pool.pages(0)}},
                    0);
    std::vector<float> rope(kRows * kRopeDim, 0.0f);  // position 0: no rotation
    for (int row = 0; row < kRows; ++row) {
      std::fill_n(rope.begin() + row * kRopeDim, kRopePairs, 1.0f);
    }
    DeviceArray<BFloat16> device_q(q);
    DeviceArray<BFloat16> device_w(w);
    DeviceArray<float> device_rope(rope);
    DeviceArray<float> scores(kRows * entries);
    DeviceArray<int32_t> selected(kRows * kTopK);
    mutant.query({.q = device_q.get(),
                  .w = device_w.get(),
                  .rows = kRows,
                  .heads = kHeads,
                  .rope = device_rope.get(),
                  .numerics = numerics},
                 TestStream().get());
    mutant.logits({.batch = batch.view(),
                   .first_row = 0,
                   .rows = kRows,
                   .q = device_q.get(),
                   .w = device_w.get(),
                   .heads = kHeads,
                   .keys = pool.Upload(),
                   .max_entries = static_cast<int>(entries),
                   .scores = scores.get(),
                   .stride = entries},
                  TestStream().get());
    cuda::TopK({.batch = batch.view(),
                .first_row = 0,
                .rows = kRows,
                .scores = scores.get(),
                .stride = entries,
                .max_entries = static_cast<int>(entries),
                .selected = selected.get(),
                .k = kTopK},
               TestStream().get());
    const std::vector<int32_t> actual = selected.Download();
    return SharedSelection(expected, actual);
  }

  int64_t entries;
  Numerics numerics;
  std::vector<BFloat16> keys;
  std::vector<BFloat16> q;
  std::vector<BFloat16> w;
  std::vector<int32_t> expected;
};

TEST_F(IndexSelectTest, GateHoldsForEveryFormatAndNoMutantPassesIt) {
  for (const int64_t entries : {8192, 22528, 65536, 131072}) {
    const std::map<Numerics, Gate> gates = [&] {
      std::map<Numerics, Gate> made;
      for (const Numerics numerics : {Numerics::kReference, Numerics::kExact}) {
        made.emplace(std::piecewise_construct, std::forward_as_tuple(numerics),
                     std::forward_as_tuple(entries, numerics));
      }
      return made;
    }();
    for (const GatedFormat& gated : kGatedFormats) {
      const Gate& gate = gates.at(gated.numerics);
      std::string line = std::to_string(entries) + " keys, " + gated.name;
      for (const IndexMutant& subject : ProductionIndex()) {
        const double overlap = gate.Overlap(gated.format, subject);
        EXPECT_GE(overlap, gated.least) << line << ", " << subject.name;
        line += std::string(", ") + subject.name + " " + std::to_string(overlap);
      }
      for (const IndexMutant& mutant : IndexMutants()) {
        if (mutant.quantised_only && gated.format == EntryFormat::kBf16) continue;
        const double overlap = gate.Overlap(gated.format, mutant);
        EXPECT_LT(overlap, gated.least) << line << ", " << mutant.name;
        line += std::string(", ") + mutant.name + " " + std::to_string(overlap);
      }
      std::printf("%s\n", line.c_str());
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
