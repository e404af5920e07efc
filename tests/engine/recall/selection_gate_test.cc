#include <cstring>
#include <string>

#include "engine/model/checkpoint.h"
#include "gtest/gtest.h"
#include "kernels/cache_entry.h"
#include "tests/engine/recall/selection_case.h"

// The gate of the CPU's index ops: on what needle-17m's layers give them, and on random vectors
// with outlier channels. Faults that are put in must not pass it.

namespace baton::engine {
namespace {

using kernels::EntryFormat;
using kernels::GatedFormat;
using kernels::kGatedFormats;
using kernels::kGateRows;
using kernels::kGateTopK;
using kernels::kIndexDim;
using kernels::TestPages;
using kernels::TestPool;
using kernels::View;

constexpr int64_t kEntries = 8192;
constexpr int kEntriesPerPage = 64;

enum class Fault { kNone, kQueryNotRotated, kNoRelu, kReadInterleaved, kNeighboursScale };
constexpr Fault kFaults[] = {Fault::kQueryNotRotated, Fault::kNoRelu, Fault::kReadInterleaved,
                             Fault::kNeighboursScale};

bool IsOfScales(Fault fault) {
  return fault == Fault::kReadInterleaved || fault == Fault::kNeighboursScale;
}

// Stored entries as a reader with that fault sees them.
void Misread(Fault fault, TestPages& pages) {
  const kernels::EntryBytes bytes = kernels::BytesOfEntry(pages.pool.format, kIndexDim);
  const std::vector<std::byte> stored = pages.memory;
  for (int64_t entry = 0; entry < kEntries; ++entry) {
    const kernels::EntryAddress to = LocateEntry(pages.pool, pages.table, entry);
    const int64_t index = entry % kEntriesPerPage;
    const std::byte* page =
        stored.data() + (to.values - index * bytes.values - pages.memory.data());
    if (fault == Fault::kReadInterleaved) {
      const std::byte* from = page + index * (bytes.values + bytes.scales);
      std::memcpy(to.values, from, bytes.values);
      std::memcpy(to.scales, from + bytes.values, bytes.scales);
    } else {
      const int64_t neighbour = (index + 1) % kEntriesPerPage;
      std::memcpy(to.scales, page + kEntriesPerPage * bytes.values + neighbour * bytes.scales,
                  bytes.scales);
    }
  }
}

std::vector<int32_t> Select(const SelectionCase& c, EntryFormat format, Fault fault) {
  TestPages pages(format, kIndexDim, kEntriesPerPage, kEntries);
  c.Store(kEntries, pages.pool, pages.table);
  if (IsOfScales(fault)) Misread(fault, pages);
  std::vector<BFloat16> q = c.activations().q;
  std::vector<BFloat16> w = c.activations().w;
  const std::vector<float> rope = c.Rope(kEntries);
  const auto q_view = View(q, kGateRows, int64_t{c.heads()} * kIndexDim);
  if (fault == Fault::kQueryNotRotated) {
    for (int64_t i = 0; i < kGateRows * c.heads(); ++i) {
      BFloat16* head = q.data() + i * kIndexDim;
      kernels::RotateRow(head + kIndexDim - kernels::kRopeDim,
                         rope.data() + i / c.heads() * kernels::kRopeDim);
      if (c.numerics() == Numerics::kReference) kernels::FakeQuantFp4(head, head, kIndexDim);
    }
  } else {
    kernels::IndexQuery({.q = q_view,
                         .heads = c.heads(),
                         .rope = View(rope, kGateRows, kernels::kRopeDim),
                         .numerics = c.numerics()},
                        TestPool());
  }
  kernels::ScaleIndexWeights(View(w, kGateRows, c.heads()));
  std::vector<int32_t> selected(kGateRows * kGateTopK);
  const kernels::IndexSelectParams params = {.q = q_view,
                                             .w = View(std::as_const(w), kGateRows, c.heads()),
                                             .heads = c.heads(),
                                             .start = SelectionCase::start(kEntries),
                                             .keys = pages.pool,
                                             .pages = pages.table,
                                             .selected = View(selected, kGateRows, kGateTopK)};
  if (fault != Fault::kNoRelu) {
    kernels::IndexSelect({&params, 1}, TestPool());
    return selected;
  }
  // relu(x) - relu(-x) = x.
  std::vector<float> scores(kGateRows * kEntries);
  std::vector<float> negative(kGateRows * kEntries);
  kernels::IndexLogits(params, View(scores, kGateRows, kEntries), TestPool());
  for (BFloat16& value : q) value = BFloat16(-static_cast<float>(value));
  kernels::IndexLogits(params, View(negative, kGateRows, kEntries), TestPool());
  for (size_t i = 0; i < scores.size(); ++i) scores[i] -= negative[i];
  for (int row = 0; row < kGateRows; ++row) {
    kernels::TopK(std::span(scores).subspan(row * kEntries, kEntries),
                  std::span(selected).subspan(row * kGateTopK, kGateTopK));
  }
  return selected;
}

void ExpectGate(const std::string& name, const ModelConfig& config,
                const IndexActivations& activations) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kExact}) {
    const SelectionCase c(config, activations, numerics);
    const std::vector<int32_t> expected = c.Expected(kEntries);
    for (const GatedFormat& gated : kGatedFormats) {
      if (gated.numerics != numerics) continue;
      const auto overlap = [&](Fault fault) {
        return kernels::SharedSelection(expected, Select(c, gated.format, fault));
      };
      const double share = overlap(Fault::kNone);
      std::string line = name + ", " + gated.name + " " + std::to_string(share) + ", faults";
      EXPECT_GE(share, gated.least) << line;
      for (const Fault fault : kFaults) {
        if (IsOfScales(fault) && gated.format == EntryFormat::kBf16) continue;
        const double faulty = overlap(fault);
        line += " " + std::to_string(faulty);
        if (kernels::TellsFaults(gated)) {
          EXPECT_LT(faulty, gated.least) << line;
        }
      }
      std::printf("%s\n", line.c_str());
    }
  }
}

TEST(SelectionGateTest, HoldsOnActivationsOfNeedle17m) {
  const CapturedIndex captured = CaptureIndex(kEntries, kGateRows);
  ASSERT_EQ(captured.layers.size(), 3u);
  for (const auto& [layer, activations] : captured.layers) {
    ExpectGate("layer " + std::to_string(layer), captured.config, activations);
  }
}

TEST(SelectionGateTest, HoldsOnRandomVectorsWithOutlierChannels) {
  ModelConfig config = Checkpoint::Open(BATON_SOURCE_DIR "/models/needle-17m")->config();
  config.index_n_heads = 64;
  const IndexActivations random = {
      .norm = std::vector<float>(kIndexDim, 1.0f),
      .pooled = kernels::WithOutlierChannels(kEntries, 21),
      .q = kernels::WithOutlierChannels(int64_t{kGateRows} * config.index_n_heads, 22),
      .w = kernels::RandomValues<BFloat16>(int64_t{kGateRows} * config.index_n_heads, 23)};
  ExpectGate("random", config, random);
}

}  // namespace
}  // namespace baton::engine
