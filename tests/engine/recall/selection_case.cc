#include "tests/engine/recall/selection_case.h"

#include "engine/model/rope_config.h"
#include "kernels/entry_store.h"

namespace baton::engine {

using kernels::kGateRows;
using kernels::kGateTopK;
using kernels::kIndexDim;
using kernels::MatrixView;
using kernels::View;

SelectionCase::SelectionCase(const ModelConfig& config, const IndexActivations& activations,
                             Numerics numerics)
    : activations_(activations),
      numerics_(numerics),
      heads_(config.index_n_heads),
      eps_(config.rms_norm_eps),
      rope_(CompressRope(config)),
      reference_(config, numerics, activations.norm) {
  const auto entries = std::ssize(activations.pooled) / kIndexDim;
  reference_.SetEntries(0, View(activations.pooled, entries, kIndexDim));
}

std::vector<float> SelectionCase::Rope(int64_t entries) const {
  std::vector<float> rope(kGateRows * kernels::kRopeDim);
  for (int row = 0; row < kGateRows; ++row) {
    rope_.Fill(start(entries) + row, rope.data() + row * kernels::kRopeDim);
  }
  return rope;
}

std::vector<int32_t> SelectionCase::Expected(int64_t entries) const {
  std::vector<int32_t> expected(kGateRows * kGateTopK);
  for (int row = 0; row < kGateRows; ++row) {
    const std::vector<float> scores = reference_.Scores(
        start(entries) + row,
        std::span(activations_.q).subspan(row * heads_ * kIndexDim, heads_ * kIndexDim),
        std::span(activations_.w).subspan(row * heads_, heads_));
    kernels::TopK(scores, std::span(expected).subspan(row * kGateTopK, kGateTopK));
  }
  return expected;
}

void SelectionCase::Store(int64_t entries, const kernels::PagedPool& pool,
                          const kernels::PageTable& pages) const {
  kernels::StoreEntries({.pooled = View(activations_.pooled, entries, kIndexDim),
                         .first_entry = 0,
                         .ratio = static_cast<int>(kCsaRatio),
                         .weight = activations_.norm,
                         .eps = eps_,
                         .rope = &rope_,
                         .numerics = numerics_,
                         .pool = pool,
                         .pages = pages},
                        kernels::TestPool());
}

}  // namespace baton::engine
