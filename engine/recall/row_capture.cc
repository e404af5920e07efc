#include "engine/recall/row_capture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton::engine {
namespace {

// Entries from the best score to the worst; ties go to the lower entry.
class Ranking {
 public:
  explicit Ranking(const std::vector<float>& scores) : ranks_(scores.size()) {
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    // A NaN, which a fault may bring, ranks last.
    const auto key = [&](int32_t entry) {
      return scores[entry] == scores[entry] ? scores[entry] : -INFINITY;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return key(a) > key(b); });
    for (size_t rank = 0; rank < order.size(); ++rank) {
      ranks_[order[rank]] = static_cast<int64_t>(rank);
    }
  }
  int64_t operator[](int64_t entry) const { return ranks_[entry]; }

 private:
  std::vector<int64_t> ranks_;
};

}  // namespace

ForwardObserver RowCapture::WholePrompt() {
  ForwardObserver observer;
  observer.on_index_entries = [this](int layer, int64_t first_entry,
                                     kernels::MatrixView<const BFloat16> pooled) {
    indexes_.at(layer).SetEntries(first_entry, pooled);
  };
  return observer;
}

ForwardObserver RowCapture::SingleRow() {
  ForwardObserver observer = WholePrompt();
  observer.on_selection = [this](int layer, int64_t, std::span<const int32_t> entries) {
    rows_[layer].selected.assign(entries.begin(), entries.end());
  };
  observer.on_scores = [this](int layer, int64_t, std::span<const float> scores) {
    rows_[layer].scores.assign(scores.begin(), scores.end());
  };
  observer.on_index_query = [this](int layer, int64_t, std::span<const BFloat16> q,
                                   std::span<const BFloat16> w) {
    rows_[layer].q.assign(q.begin(), q.end());
    rows_[layer].w.assign(w.begin(), w.end());
  };
  observer.on_attention = [this](int layer, int64_t, kernels::MatrixView<const float> shares) {
    std::vector<float>& attention = rows_[layer].attention;
    attention.assign(shares.cols, 0);
    for (int64_t head = 0; head < shares.rows; ++head) {
      for (int64_t i = 0; i < shares.cols; ++i) {
        attention[i] = std::max(attention[i], shares.Row(head)[i]);
      }
    }
  };
  return observer;
}

std::vector<LayerReport> RowCapture::Report(int64_t position, const IndexRange& needle) const {
  std::vector<LayerReport> reports;
  for (const auto& [layer, row] : rows_) {
    const std::vector<float> fp32 = indexes_.at(layer).Scores(position, row.q, row.w);
    const Ranking ranks(row.scores);
    const Ranking fp32_ranks(fp32);
    const auto selected = std::ssize(row.selected);
    LayerReport& report = reports.emplace_back();
    report.layer = layer;
    report.visible = std::ssize(row.scores);
    report.selected = selected;
    const auto common = std::count_if(row.selected.begin(), row.selected.end(),
                                      [&](int32_t entry) { return fp32_ranks[entry] < selected; });
    if (selected > 0) report.overlap = static_cast<double>(common) / static_cast<double>(selected);
    const int64_t end = std::min((needle.end + kCsaRatio - 1) / kCsaRatio, report.visible);
    for (int64_t entry = needle.begin / kCsaRatio; entry < end; ++entry) {
      const auto found = std::lower_bound(row.selected.begin(), row.selected.end(), entry);
      const bool is_selected = found != row.selected.end() && *found == entry;
      report.needle.push_back(
          {.entry = entry,
           .rank = ranks[entry],
           .rank_fp32 = fp32_ranks[entry],
           .score = row.scores[entry],
           .score_fp32 = fp32[entry],
           .selected = is_selected,
           .selected_fp32 = fp32_ranks[entry] < selected,
           .attention = is_selected ? row.attention[found - row.selected.begin()] : 0.0f});
    }
  }
  return reports;
}

}  // namespace baton::engine
