#include "kernels/sparse_attention.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "kernels/cache_entry.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/row_blocks.h"

namespace baton::kernels {

namespace {

constexpr int64_t kBlockRows = 8;

// The candidates of one row at a time, as pointers to BF16 vectors.
class CandidateList {
 public:
  explicit CandidateList(const SparseAttentionParams& params) : params_(params) {}

  // Pointers stay valid until the next call; followed by the spare ones of AttentionRow.
  const std::vector<const BFloat16*>& Collect(int64_t row) {
    const int64_t position = params_.start + row;
    entries_.clear();
    for (int64_t p = std::max<int64_t>(0, position - params_.window + 1); p <= position; ++p) {
      entries_.push_back(p < params_.start ? params_.ring.Row(p)
                                           : params_.chunk.Row(p - params_.start));
    }
    if (params_.ratio > 0) AddCompressed(row, (position + 1) / params_.ratio);
    count_ = static_cast<int64_t>(entries_.size());
    entries_.insert(entries_.end(), kAttentionSpareEntries, entries_.front());
    return entries_;
  }

  int64_t count() const { return count_; }

 private:
  void AddCompressed(int64_t row, int64_t visible) {
    int64_t count = visible;
    const int32_t* selected = nullptr;
    if (params_.selected) {
      selected = params_.selected.Row(row);
      count = std::find(selected, selected + params_.selected.cols, -1) - selected;
    }
    if (params_.pool.format == EntryFormat::kBf16) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t entry = selected != nullptr ? selected[i] : i;
        entries_.push_back(reinterpret_cast<const BFloat16*>(
            LocateEntry(params_.pool, params_.pages, entry).values));
      }
      return;
    }
    const int64_t width = params_.pool.head_dim;
    // Unselected entries are the same for every row but for those that appear in between.
    const int64_t known = selected != nullptr ? 0 : decoded_;
    if (static_cast<int64_t>(values_.size()) < count * width) values_.resize(count * width);
    for (int64_t i = known; i < count; ++i) {
      DecodeEntry(params_.pool, params_.pages, selected != nullptr ? selected[i] : i,
                  values_.data() + i * width);
    }
    decoded_ = std::max(known, count);
    for (int64_t i = 0; i < count; ++i) entries_.push_back(values_.data() + i * width);
  }

  const SparseAttentionParams& params_;
  std::vector<const BFloat16*> entries_;
  int64_t count_ = 0;
  std::vector<BFloat16> values_;
  int64_t decoded_ = 0;
};

void CheckShapes(const SparseAttentionParams& params) {
  const int64_t head_dim = params.heads > 0 ? params.q.cols / params.heads : 0;
  BATON_CHECK(head_dim * params.heads == params.q.cols && head_dim % 64 == 0 && head_dim > 0 &&
              static_cast<int>(params.sinks.size()) == params.heads && params.window > 0)
      << "heads " << params.heads << ", q " << params.q.cols;
  BATON_CHECK(params.chunk.rows == params.q.rows && params.chunk.cols == head_dim &&
              params.out.rows == params.q.rows && params.out.cols == params.q.cols);
  BATON_CHECK(params.start == 0 || params.ring.width == head_dim);
  BATON_CHECK(params.ratio == 0 || params.pool.head_dim == head_dim);
}

void AttendBlock(const RowBlock<SparseAttentionParams>& block) {
  const SparseAttentionParams& params = *block.sequence;
  const int head_dim = static_cast<int>(params.q.cols / params.heads);
  CandidateList candidates(params);
  std::vector<float> scratch;
  for (int64_t row = block.begin; row < block.end; ++row) {
    const std::vector<const BFloat16*>& entries = candidates.Collect(row);
    scratch.resize(AttentionScratchFloats(params.heads, head_dim, candidates.count()));
    Isa().attention_row({.q = params.q.Row(row),
                         .heads = params.heads,
                         .head_dim = head_dim,
                         .entries = entries.data(),
                         .count = candidates.count(),
                         .sinks = params.sinks.data(),
                         .scale = params.scale,
                         .scratch = scratch.data(),
                         .out = params.out.Row(row)});
  }
}

}  // namespace

void SparseAttention(std::span<const SparseAttentionParams> sequences, ThreadPool& pool) {
  for (const SparseAttentionParams& params : sequences) CheckShapes(params);
  const auto blocks =
      CutIntoBlocks(sequences, [](const SparseAttentionParams&) { return kBlockRows; });
  pool.For(static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) AttendBlock(blocks[i]);
  });
}

}  // namespace baton::kernels
