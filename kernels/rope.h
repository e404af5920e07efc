#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/base/bf16.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

// Rotary embedding of the last 64 channels of a vector, interleaved pairs (2i, 2i + 1):
// (a, b) -> (a cos - b sin, a sin + b cos), FP32 inside, BF16 in and out.

namespace baton::kernels {

inline constexpr int kRopeDim = 64;
inline constexpr int kRopePairs = kRopeDim / 2;

struct RopeConfig {
  double theta = 10000;
  // YaRN: frequencies whose period is long against the training context are divided by `factor`.
  // factor 1 means plain RoPE. No magnitude factor.
  double factor = 1;
  int64_t original_positions = 65536;
  double beta_fast = 32;
  double beta_slow = 1;
};

class RopeTable {
 public:
  explicit RopeTable(const RopeConfig& config);

  // f_i, FP32.
  std::span<const float> frequencies() const { return frequencies_; }

  // 32 cosines, then 32 sines, of the angle fl32(fl32(position) * f_i).
  void Fill(int64_t position, float* cos_sin) const;
  // One row per position: [positions.size(), 64]. This is what `rope` means in other ops; filled
  // once a batch, it serves all layers with the same table.
  void Fill(std::span<const int64_t> positions, MatrixView<float> rope) const;

 private:
  std::array<float, kRopePairs> frequencies_{};
};

// In place on x's last 64 channels; `inverse` rotates back.
void RotateRow(BFloat16* last_channels, const float* cos_sin);
void RotateRowBack(BFloat16* last_channels, const float* cos_sin);

// In place, per row and head of q [rows, heads * head_dim]: bf16(q * rsqrt(mean(q^2) + eps)) with
// FP32 inside (no weight), then the rotation.
struct QueryNormRopeParams {
  MatrixView<BFloat16> q;
  int heads = 0;
  float eps = 1e-6f;
  MatrixView<const float> rope;  // [rows, 64]
};
void QueryNormRope(const QueryNormRopeParams& params, ThreadPool& pool);

// In place: rotates the last 64 channels of every head of o [rows, heads * head_dim] back.
void InverseRope(MatrixView<BFloat16> o, int heads, MatrixView<const float> rope, ThreadPool& pool);

}  // namespace baton::kernels
