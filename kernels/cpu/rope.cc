#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

// The pair index at which a wave turns `rotations` times over the original training length.
double PairOfRotations(double rotations, const RopeConfig& config) {
  const double positions = static_cast<double>(config.original_positions);
  return kRopeDim * std::log(positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

void Rotate(BFloat16* x, const float* cos_sin, float direction) {
  for (int i = 0; i < kRopePairs; ++i) {
    const float cosine = cos_sin[i];
    const float sine = direction * cos_sin[kRopePairs + i];
    const float a = static_cast<float>(x[2 * i]);
    const float b = static_cast<float>(x[2 * i + 1]);
    x[2 * i] = BFloat16(a * cosine - b * sine);
    x[2 * i + 1] = BFloat16(a * sine + b * cosine);
  }
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config) {
  double low = std::floor(PairOfRotations(config.beta_fast, config));
  double high = std::ceil(PairOfRotations(config.beta_slow, config));
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(kRopeDim - 1));
  if (high == low) high += 0.001;
  for (int i = 0; i < kRopePairs; ++i) {
    const double frequency = std::pow(config.theta, -2.0 * i / kRopeDim);
    const double ramp = config.factor == 1 ? 0 : std::clamp((i - low) / (high - low), 0.0, 1.0);
    frequencies_[i] = static_cast<float>(frequency * (1 - ramp) + frequency / config.factor * ramp);
  }
}

void RopeTable::Fill(int64_t position, float* cos_sin) const {
  for (int i = 0; i < kRopePairs; ++i) {
    // The angle is rounded to FP32 first, then taken as exact: it reaches 1e6.
    const double angle = static_cast<float>(position) * frequencies_[i];
    cos_sin[i] = static_cast<float>(std::cos(angle));
    cos_sin[kRopePairs + i] = static_cast<float>(std::sin(angle));
  }
}

void RopeTable::Fill(std::span<const int64_t> positions, MatrixView<float> rope) const {
  BATON_CHECK(rope.rows == static_cast<int64_t>(positions.size()) && rope.cols == kRopeDim);
  for (int64_t row = 0; row < rope.rows; ++row) Fill(positions[row], rope.Row(row));
}

void RotateRow(BFloat16* last_channels, const float* cos_sin) {
  Rotate(last_channels, cos_sin, 1.0f);
}

void RotateRowBack(BFloat16* last_channels, const float* cos_sin) {
  Rotate(last_channels, cos_sin, -1.0f);
}

void QueryNormRope(const QueryNormRopeParams& params, ThreadPool& pool) {
  const int64_t head_dim = params.heads > 0 ? params.q.cols / params.heads : 0;
  BATON_CHECK(head_dim * params.heads == params.q.cols && head_dim % 16 == 0 &&
              head_dim >= kRopeDim && params.rope.rows == params.q.rows)
      << "width " << params.q.cols << ", heads " << params.heads;
  const IsaKernels& isa = Isa();
  pool.For(params.q.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int head = 0; head < params.heads; ++head) {
        BFloat16* q = params.q.Row(row) + head * head_dim;
        const int n = static_cast<int>(head_dim);
        const float factor = 1.0f / std::sqrt(isa.mean_square(q, n) + params.eps);
        isa.scale_row(q, nullptr, factor, n, q);
        RotateRow(q + head_dim - kRopeDim, params.rope.Row(row));
      }
    }
  });
}

void InverseRope(MatrixView<BFloat16> o, int heads, MatrixView<const float> rope,
                 ThreadPool& pool) {
  const int64_t head_dim = heads > 0 ? o.cols / heads : 0;
  BATON_CHECK(head_dim * heads == o.cols && head_dim >= kRopeDim && rope.rows == o.rows)
      << "width " << o.cols << ", heads " << heads;
  pool.For(o.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int head = 0; head < heads; ++head) {
        RotateRowBack(o.Row(row) + (head + 1) * head_dim - kRopeDim, rope.Row(row));
      }
    }
  });
}

}  // namespace baton::kernels
