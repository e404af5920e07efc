#include "kernels/cpu/isa/kernels.h"

namespace baton::kernels::BATON_ISA {

namespace {

constexpr int kDim = 128;
constexpr int kPanels = kIndexBlockEntries / kLanes;

// Adds w_h relu(q_h . K) of kHeads consecutive heads to score, ascending.
template <int kHeads>
void AddHeads(const float* q, const float* w, const float* keys, F32x16* score) {
  F32x16 dot[kHeads][kPanels];
  for (int h = 0; h < kHeads; ++h) {
    for (int p = 0; p < kPanels; ++p) dot[h][p] = Zero();
  }
  for (int i = 0; i < kDim; ++i) {
    F32x16 key[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) key[p] = Load(keys + (p * kDim + i) * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const F32x16 value = Broadcast(q[h * kDim + i]);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) dot[h][p] = Fma(value, key[p], dot[h][p]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int p = 0; p < kPanels; ++p) {
      score[p] = Fma(Broadcast(w[h]), Max(Zero(), dot[h][p]), score[p]);
    }
  }
}

}  // namespace

void Interleave(const BFloat16* const* rows, int n, float* panel) {
  for (int i = 0; i < n; i += 2) {
    // A word holds two successive values of a row.
    uint32_t words[kLanes];
#pragma GCC unroll 16
    for (int row = 0; row < kLanes; ++row)
      std::memcpy(&words[row], rows[row] + i, sizeof(uint32_t));
    BFloat16 pairs[2 * kLanes];
    std::memcpy(static_cast<void*>(pairs), words, sizeof(words));
    const EvenOdd values = LoadEvenOdd(pairs);
    Store(values.even, panel + i * kLanes);
    Store(values.odd, panel + (i + 1) * kLanes);
  }
}

void ScoreIndexBlock(const IndexBlock& block) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* q = block.q + row * block.heads * kDim;
    const float* w = block.w + row * block.heads;
    F32x16 score[kPanels];
    for (F32x16& s : score) s = Zero();
    int head = 0;
    for (; head + 8 <= block.heads; head += 8) {
      AddHeads<8>(q + head * kDim, w + head, block.keys, score);
    }
    for (; head < block.heads; ++head) AddHeads<1>(q + head * kDim, w + head, block.keys, score);
    for (int p = 0; p < kPanels; ++p)
      Store(score[p], block.scores + row * block.stride + p * kLanes);
  }
}

}  // namespace baton::kernels::BATON_ISA
