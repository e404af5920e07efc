#include <string>

#include "kernels/cuda/index_query.h"
#include "kernels/cuda/topk.h"
#include "tests/engine/recall/selection_case.h"
#include "tests/kernels/cuda/entry_pool.h"
#include "tests/kernels/cuda/index_mutants.h"
#include "tests/kernels/cuda/support.h"

// The gate of a device's index ops on what needle-17m's layers give them. On random vectors:
// tests/kernels/cuda/index_select_test.cc.

namespace baton::engine {
namespace {

using kernels::EntryFormat;
using kernels::GatedFormat;
using kernels::kGatedFormats;
using kernels::kGateRows;
using kernels::kGateTopK;
using kernels::kIndexDim;
using kernels::cuda::DeviceArray;
using kernels::cuda::IndexMutant;
using kernels::cuda::TestStream;

constexpr int64_t kCapturedEntries = 22528;
constexpr int64_t kMostEntries = 131072;

class CudaSelectionGateTest : public kernels::cuda::CudaTest {};

std::vector<int32_t> Select(const SelectionCase& c, int64_t entries, kernels::cuda::EntryPool& pool,
                            const IndexMutant& subject) {
  kernels::cuda::TestBatch batch({{.start = static_cast<int32_t>(SelectionCase::start(entries)),
                                   .rows = kGateRows,
                                   .slot = 0,
                                   .pages = pool.pages(0)}},
                                 0);
  DeviceArray<BFloat16> q(c.activations().q);
  DeviceArray<BFloat16> w(c.activations().w);
  DeviceArray<float> rope(c.Rope(entries));
  DeviceArray<float> scores(kGateRows * entries);
  DeviceArray<int32_t> selected(kGateRows * kGateTopK);
  subject.query({.q = q.get(),
                 .w = w.get(),
                 .rows = kGateRows,
                 .heads = c.heads(),
                 .rope = rope.get(),
                 .numerics = c.numerics()},
                TestStream().get());
  subject.logits({.batch = batch.view(),
                  .first_row = 0,
                  .rows = kGateRows,
                  .q = q.get(),
                  .w = w.get(),
                  .heads = c.heads(),
                  .keys = pool.Upload(),
                  .max_entries = static_cast<int>(entries),
                  .scores = scores.get(),
                  .stride = entries},
                 TestStream().get());
  kernels::cuda::TopK({.batch = batch.view(),
                       .first_row = 0,
                       .rows = kGateRows,
                       .scores = scores.get(),
                       .stride = entries,
                       .max_entries = static_cast<int>(entries),
                       .selected = selected.get(),
                       .k = kGateTopK},
                      TestStream().get());
  return selected.Download();
}

void ExpectGate(const SelectionCase& c, int64_t entries, const GatedFormat& gated,
                const std::string& name) {
  const std::vector<int32_t> expected = c.Expected(entries);
  kernels::cuda::EntryPool pool(gated.format, kIndexDim, kernels::cuda::kTestEntriesPerPage,
                                {entries}, 2);
  c.Store(entries, pool.host(), pool.table(0));
  std::string line = name + ", " + std::to_string(entries) + " keys, " + gated.name;
  const auto overlap = [&](const IndexMutant& subject) {
    const double share = kernels::SharedSelection(expected, Select(c, entries, pool, subject));
    line += std::string(", ") + subject.name + " " + std::to_string(share);
    return share;
  };
  for (const IndexMutant& subject : kernels::cuda::ProductionIndex()) {
    EXPECT_GE(overlap(subject), gated.least) << line;
  }
  for (const IndexMutant& mutant : kernels::cuda::IndexMutants()) {
    if (mutant.quantised_only && gated.format == EntryFormat::kBf16) continue;
    const double faulty = overlap(mutant);
    if (kernels::TellsFaults(gated)) {
      EXPECT_LT(faulty, gated.least) << line;
    }
  }
  std::printf("%s\n", line.c_str());
}

TEST_F(CudaSelectionGateTest, HoldsOnActivationsOfNeedle17m) {
  CapturedIndex captured = CaptureIndex(kCapturedEntries, kGateRows);
  RepeatEntries(kMostEntries, captured);
  for (const auto& [layer, activations] : captured.layers) {
    for (const Numerics numerics : {Numerics::kReference, Numerics::kExact}) {
      const SelectionCase c(captured.config, activations, numerics);
      for (const int64_t entries :
           {int64_t{8192}, kCapturedEntries, int64_t{65536}, kMostEntries}) {
        for (const GatedFormat& gated : kGatedFormats) {
          if (gated.numerics != numerics) continue;
          ExpectGate(c, entries, gated, "layer " + std::to_string(layer));
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine
