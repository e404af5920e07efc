#include "engine/model/explain.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cache_entry.h"

namespace baton::engine {
namespace {

using kernels::MatrixView;
using kernels::SparseAttentionParams;

// FP32 copies of the vectors that a row attends: its window, then its selection.
std::vector<std::vector<float>> Candidates(const SparseAttentionParams& params, int64_t row,
                                           int64_t head_dim) {
  std::vector<std::vector<float>> candidates;
  const auto add = [&](const BFloat16* values) {
    candidates.emplace_back(values, values + head_dim);
  };
  const int64_t position = params.start + row;
  for (int64_t p = std::max<int64_t>(0, position - params.window + 1); p <= position; ++p) {
    add(p < params.start ? params.ring.Row(p) : params.chunk.Row(p - params.start));
  }
  std::vector<BFloat16> decoded(head_dim);
  for (int64_t i = 0; i < params.selected.cols && params.selected.Row(row)[i] >= 0; ++i) {
    kernels::DecodeEntry(params.pool, params.pages, params.selected.Row(row)[i], decoded.data());
    add(decoded.data());
  }
  return candidates;
}

}  // namespace

void ReportScores(const kernels::IndexSelectParams& params, int layer, int64_t first_row,
                  ForwardContext& context) {
  for (int64_t row = 0; row < params.q.rows; ++row) {
    kernels::IndexSelectParams single = params;
    single.q = params.q.Rows(row, 1);
    single.w = params.w.Rows(row, 1);
    single.start = params.start + row;
    std::vector<float> scores((single.start + 1) / kCsaRatio);
    if (!scores.empty()) {
      kernels::IndexLogits(single, {scores.data(), 1, std::ssize(scores)}, context.pool);
    }
    context.observer.on_scores(layer, first_row + row, scores);
  }
}

void ReportAttention(const SparseAttentionParams& params, int layer, int64_t first_row,
                     const ForwardObserver& observer) {
  const int64_t head_dim = params.q.cols / params.heads;
  for (int64_t row = 0; row < params.q.rows; ++row) {
    const std::vector<std::vector<float>> candidates = Candidates(params, row, head_dim);
    const int64_t selected =
        std::count_if(params.selected.Row(row), params.selected.Row(row) + params.selected.cols,
                      [](int32_t entry) { return entry >= 0; });
    std::vector<float> shares(params.heads * selected);
    for (int head = 0; head < params.heads; ++head) {
      const BFloat16* q = params.q.Row(row) + head * head_dim;
      const std::vector<float> query(q, q + head_dim);
      std::vector<float> logits;
      for (const std::vector<float>& key : candidates) {
        logits.push_back(params.scale *
                         std::inner_product(query.begin(), query.end(), key.begin(), 0.0f));
      }
      const float most = *std::max_element(logits.begin(), logits.end());
      float total = std::exp(params.sinks[head] - most);
      for (float& logit : logits) total += logit = std::exp(logit - most);
      std::transform(logits.end() - selected, logits.end(), shares.begin() + head * selected,
                     [&](float weight) { return weight / total; });
    }
    observer.on_attention(layer, first_row + row,
                          MatrixView<const float>(shares.data(), params.heads, selected));
  }
}

}  // namespace baton::engine
