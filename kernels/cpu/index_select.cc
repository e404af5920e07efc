#include "kernels/index_select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "common/base/check.h"
#include "kernels/cache_entry.h"
#include "kernels/compressor.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/rope.h"

namespace baton::kernels {

namespace {

constexpr int64_t kMaxRowsAtOnce = 64;
constexpr int kLanes = 16;

int64_t VisibleEntries(const IndexSelectParams& params, int64_t row) {
  return (params.start + row + 1) / kCsaRatio;
}

// Keys as the inner loops want them, a block of entries at a time.
class KeyBlock {
 public:
  KeyBlock(const PagedPool& keys, const PageTable& pages) : keys_(keys), pages_(pages) {}

  // Entries [first, first + kIndexBlockEntries) as FP32 panels; beyond `end` the last one repeats.
  const float* Load(int64_t first, int64_t end) {
    std::array<const BFloat16*, kIndexBlockEntries> rows;
    for (int i = 0; i < kIndexBlockEntries; ++i) {
      const int64_t entry = std::min(first + i, end - 1);
      if (keys_.format == EntryFormat::kBf16) {
        rows[i] = reinterpret_cast<const BFloat16*>(LocateEntry(keys_, pages_, entry).values);
      } else {
        BFloat16* row = decoded_.data() + i * kIndexDim;
        DecodeEntry(keys_, pages_, entry, row);
        rows[i] = row;
      }
    }
    for (int i = 0; i < kIndexBlockEntries; i += kLanes) {
      Isa().interleave(&rows[i], kIndexDim, panels_.data() + i * kIndexDim);
    }
    return panels_.data();
  }

 private:
  const PagedPool& keys_;
  const PageTable& pages_;
  std::array<BFloat16, kIndexBlockEntries * kIndexDim> decoded_;
  std::array<float, kIndexBlockEntries * kIndexDim> panels_;
};

// Scores of rows [begin, end) against all entries the last of them sees; `scores` has one row for
// each, `stride` apart, with room for a multiple of kIndexBlockEntries.
void ScoreRows(const IndexSelectParams& params, int64_t begin, int64_t end, float* scores,
               int64_t stride) {
  const int64_t rows = end - begin;
  const IsaKernels& isa = Isa();
  std::vector<float> q(rows * params.heads * kIndexDim);
  std::vector<float> w(rows * params.heads);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t width = int64_t{params.heads} * kIndexDim;
    isa.widen(params.q.Row(begin + row), width, q.data() + row * width);
    for (int head = 0; head < params.heads; ++head) {
      w[row * params.heads + head] = static_cast<float>(params.w.Row(begin + row)[head]);
    }
  }
  KeyBlock keys(params.keys, params.pages);
  const int64_t visible = VisibleEntries(params, end - 1);
  for (int64_t entry = 0; entry < visible; entry += kIndexBlockEntries) {
    isa.index_block({.q = q.data(),
                     .w = w.data(),
                     .rows = rows,
                     .heads = params.heads,
                     .keys = keys.Load(entry, visible),
                     .scores = scores + entry,
                     .stride = stride});
  }
}

int64_t RoundUpToBlock(int64_t entries) {
  return (entries + kIndexBlockEntries - 1) / kIndexBlockEntries * kIndexBlockEntries;
}

void CheckShapes(const IndexSelectParams& params) {
  BATON_CHECK(params.heads > 0 && params.q.cols == int64_t{params.heads} * kIndexDim &&
              params.w.cols == params.heads && params.w.rows == params.q.rows)
      << "heads " << params.heads << ", q " << params.q.cols << ", w " << params.w.cols;
  BATON_CHECK(params.keys.head_dim == kIndexDim) << "key width " << params.keys.head_dim;
}

// Ascending with the score; NaN lowest; -0 as +0.
uint32_t OrderedKey(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t flipped = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return score == score ? flipped : 0;
}

// The k-th largest key, found 11, 11 and 10 bits at a time, and how many keys equal to it belong to
// the k largest.
struct Threshold {
  uint32_t key = 0;
  int64_t ties = 0;
};

// Loops over keys have no branch that depends on a key: half of those would be mispredicted.
Threshold KthLargest(std::span<const uint32_t> keys, int64_t k) {
  constexpr std::array<int, 3> kShifts = {21, 10, 0};
  constexpr std::array<int, 3> kBits = {11, 11, 10};
  std::array<uint32_t, 2048> histogram;
  std::vector<uint32_t> candidates(keys.begin(), keys.end());
  size_t count = candidates.size();
  Threshold result = {.ties = k};
  for (size_t pass = 0; pass < kShifts.size(); ++pass) {
    const int shift = kShifts[pass];
    const uint32_t mask = (1u << kBits[pass]) - 1;
    histogram.fill(0);
    for (size_t i = 0; i < count; ++i) ++histogram[(candidates[i] >> shift) & mask];
    uint32_t digit = mask;
    while (histogram[digit] < result.ties) result.ties -= histogram[digit--];
    result.key |= digit << shift;
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t key = candidates[i];
      candidates[kept] = key;
      kept += ((key >> shift) & mask) == digit ? 1 : 0;
    }
    count = kept;
  }
  return result;
}

void SelectBlock(const RowBlock<IndexSelectParams>& block) {
  const IndexSelectParams& params = *block.sequence;
  const MatrixView<int32_t> selected = params.selected;
  int64_t begin = block.begin;
  while (begin < block.end && VisibleEntries(params, begin) <= selected.cols) {
    const int64_t visible = VisibleEntries(params, begin);
    int32_t* row = selected.Row(begin++);
    std::iota(row, row + visible, 0);
    std::fill(row + visible, row + selected.cols, -1);
  }
  if (begin == block.end) return;
  const int64_t stride = RoundUpToBlock(VisibleEntries(params, block.end - 1));
  const auto scores = std::make_unique_for_overwrite<float[]>((block.end - begin) * stride);
  ScoreRows(params, begin, block.end, scores.get(), stride);
  for (int64_t row = begin; row < block.end; ++row) {
    const float* row_scores = scores.get() + (row - begin) * stride;
    TopK({row_scores, static_cast<size_t>(VisibleEntries(params, row))},
         {selected.Row(row), static_cast<size_t>(selected.cols)});
  }
}

}  // namespace

void IndexQuery(const IndexQueryParams& params, ThreadPool& pool) {
  BATON_CHECK(params.q.cols == int64_t{params.heads} * kIndexDim &&
              params.rope.rows == params.q.rows)
      << "heads " << params.heads << ", q " << params.q.cols;
  const IsaKernels& isa = Isa();
  pool.For(params.q.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int head = 0; head < params.heads; ++head) {
        BFloat16* q = params.q.Row(row) + head * kIndexDim;
        RotateRow(q + kIndexDim - kRopeDim, params.rope.Row(row));
        isa.hadamard128(q);
        if (params.numerics == Numerics::kReference) isa.fake_quant_fp4(q, q, kIndexDim);
      }
    }
  });
}

void ScaleIndexWeights(MatrixView<BFloat16> w) {
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(kIndexDim * w.cols)));
  for (int64_t row = 0; row < w.rows; ++row) {
    for (int64_t head = 0; head < w.cols; ++head) {
      w.Row(row)[head] = BFloat16(static_cast<float>(w.Row(row)[head]) * scale);
    }
  }
}

void TopK(std::span<const float> scores, std::span<int32_t> selected) {
  const int64_t n = static_cast<int64_t>(scores.size());
  const int64_t k = static_cast<int64_t>(selected.size());
  if (n <= k) {
    std::iota(selected.begin(), selected.begin() + n, 0);
    std::fill(selected.begin() + n, selected.end(), -1);
    return;
  }
  if (k == 0) return;
  std::vector<uint32_t> keys(n);
  std::transform(scores.begin(), scores.end(), keys.begin(), OrderedKey);
  Threshold threshold = KthLargest(keys, k);
  int64_t count = 0;
  for (int64_t i = 0; count < k; ++i) {
    const int64_t tie = static_cast<int64_t>(keys[i] == threshold.key) & (threshold.ties > 0);
    threshold.ties -= tie;
    selected[count] = static_cast<int32_t>(i);
    count += tie | static_cast<int64_t>(keys[i] > threshold.key);
  }
}

void IndexLogits(const IndexSelectParams& params, MatrixView<float> scores, ThreadPool& pool) {
  CheckShapes(params);
  BATON_CHECK(scores.rows == params.q.rows);
  pool.For(params.q.rows, kMaxRowsAtOnce, [&](int64_t begin, int64_t end) {
    const int64_t stride = RoundUpToBlock(VisibleEntries(params, end - 1));
    std::vector<float> padded((end - begin) * stride);
    ScoreRows(params, begin, end, padded.data(), stride);
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(padded.data() + (row - begin) * stride, VisibleEntries(params, row),
                  scores.Row(row));
    }
  });
}

void IndexSelect(std::span<const IndexSelectParams> sequences, ThreadPool& pool) {
  for (const IndexSelectParams& params : sequences) {
    CheckShapes(params);
    BATON_CHECK(params.selected.rows == params.q.rows && params.selected.cols > 0);
  }
  const int64_t budget = kIndexScratchBytes / pool.threads() / static_cast<int64_t>(sizeof(float));
  const auto blocks = CutIntoBlocks(sequences, [&](const IndexSelectParams& params) {
    const int64_t most = RoundUpToBlock(VisibleEntries(params, params.q.rows - 1));
    return std::clamp<int64_t>(budget / std::max<int64_t>(1, most), 1, kMaxRowsAtOnce);
  });
  pool.For(static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) SelectBlock(blocks[i]);
  });
}

}  // namespace baton::kernels
