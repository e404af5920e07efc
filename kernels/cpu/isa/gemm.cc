#include "kernels/cpu/isa/kernels.h"

namespace baton::kernels::BATON_ISA {

namespace {

constexpr int kPanel = 16;

// The tiles that keep all accumulators in registers, tallest first. Few rows take many panels, so
// that enough independent chains hide the latency of a fused multiply-add.
#if BATON_ISA_BYTES == 64
constexpr int kTallRows = 12, kTallPanels = 2;
constexpr int kMiddleRows = 4, kMiddlePanels = 4;
constexpr int kFlatPanels = 8;
#else
constexpr int kTallRows = 4, kTallPanels = 1;
constexpr int kMiddleRows = 2, kMiddlePanels = 2;
constexpr int kFlatPanels = 4;
#endif

// Columns of a panel two k at a time; see PackedMatrix.
struct Bf16Panels {
  const BFloat16* data;
  int64_t k;

  EvenOdd At(int64_t panel, int64_t i) const {
    return LoadEvenOdd(data + panel * kPanel * ((k + 1) / 2 * 2) + i * kPanel);
  }
};

struct F32Panels {
  const float* data;
  int64_t k;

  EvenOdd At(int64_t panel, int64_t i) const {
    const float* even = data + panel * kPanel * ((k + 1) / 2 * 2) + i * kPanel;
    return {Load(even), Load(even + kPanel)};
  }
};

inline void StoreColumns(const F32x16& value, const GemmBlock& block, int64_t row, int64_t panel) {
  const int64_t column = panel * kPanel;
  const int64_t offset = row * block.y_stride + column;
  if (column + kPanel <= block.columns) {
    if (block.y_f32 != nullptr) {
      Store(value, block.y_f32 + offset);
    } else {
      Store(value, block.y_bf16 + offset);
    }
    return;
  }
  float wide[kPanel];
  BFloat16 narrow[kPanel];
  Store(value, wide);
  Store(value, narrow);
  for (int64_t i = 0; column + i < block.columns; ++i) {
    if (block.y_f32 != nullptr) {
      block.y_f32[offset + i] = wide[i];
    } else {
      block.y_bf16[offset + i] = narrow[i];
    }
  }
}

template <int kRows, int kCount, typename Panels>
void Tile(const GemmBlock& block, Panels w, int64_t row, int64_t panel) {
  F32x16 sum[kRows][kCount];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kCount; ++p) sum[r][p] = Zero();
  }
  const float* x = block.x + row * block.k;
  const auto add = [&](int64_t i, bool both) {
    EvenOdd column[kCount];
#pragma GCC unroll 16
    for (int p = 0; p < kCount; ++p) column[p] = w.At(panel + p, i);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 value = Broadcast(x[r * block.k + i]);
#pragma GCC unroll 16
      for (int p = 0; p < kCount; ++p) sum[r][p] = Fma(value, column[p].even, sum[r][p]);
    }
    if (!both) return;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 value = Broadcast(x[r * block.k + i + 1]);
#pragma GCC unroll 16
      for (int p = 0; p < kCount; ++p) sum[r][p] = Fma(value, column[p].odd, sum[r][p]);
    }
  };
  const int64_t even_k = block.k / 2 * 2;
  for (int64_t i = 0; i < even_k; i += 2) add(i, true);
  if (even_k < block.k) add(even_k, false);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kCount; ++p) StoreColumns(sum[r][p], block, row + r, panel + p);
  }
}

// All panels from `panel` on, for kRows rows.
template <int kRows, int kCount, typename Panels>
void Strip(const GemmBlock& block, Panels w, int64_t row, int64_t panel) {
  for (; panel + kCount <= block.end_panel; panel += kCount) {
    Tile<kRows, kCount>(block, w, row, panel);
  }
  if constexpr (kCount > 1) Strip<kRows, kCount / 2>(block, w, row, panel);
}

template <typename Panels>
void Run(const GemmBlock& block, Panels w) {
  // Panels outside, rows inside: a pair of panels stays in the first-level cache.
  const int64_t tall_rows = block.rows / kTallRows * kTallRows;
  int64_t panel = block.first_panel;
  for (; tall_rows > 0 && panel + kTallPanels <= block.end_panel; panel += kTallPanels) {
    for (int64_t row = 0; row < tall_rows; row += kTallRows) {
      Tile<kTallRows, kTallPanels>(block, w, row, panel);
    }
  }
  for (int64_t row = 0; row < tall_rows; row += kTallRows) {
    Strip<kTallRows, 1>(block, w, row, panel);
  }
  int64_t row = tall_rows;
  for (; row + kMiddleRows <= block.rows; row += kMiddleRows) {
    Strip<kMiddleRows, kMiddlePanels>(block, w, row, block.first_panel);
  }
  for (; row < block.rows; ++row) Strip<1, kFlatPanels>(block, w, row, block.first_panel);
}

}  // namespace

void Widen(const BFloat16* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) Store(Load(x + i), y + i);
}

void Gemm(const GemmBlock& block) {
  if (block.f32_panels != nullptr) {
    Run(block, F32Panels{block.f32_panels, block.k});
  } else {
    Run(block, Bf16Panels{block.bf16_panels, block.k});
  }
}

}  // namespace baton::kernels::BATON_ISA
