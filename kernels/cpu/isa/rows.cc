#include "kernels/cpu/isa/kernels.h"

namespace baton::kernels::BATON_ISA {

namespace {

constexpr int kStreamCount = 4;

}  // namespace

float MeanSquare(const BFloat16* x, int n) {
  F32x16 sum[4] = {Zero(), Zero(), Zero(), Zero()};
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 v = Load(x + i);
    sum[i / kLanes % 4] = Fma(v, v, sum[i / kLanes % 4]);
  }
  return Sum((sum[0] + sum[1]) + (sum[2] + sum[3])) / static_cast<float>(n);
}

void ScaleRow(const BFloat16* x, const float* weight, float factor, int n, BFloat16* y) {
  const F32x16 f = Broadcast(factor);
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 scaled = Load(x + i) * f;
    Store(weight != nullptr ? Load(weight + i) * scaled : scaled, y + i);
  }
}

void HcMix(const HcMixBlock& block) {
  const auto input = [&](int mix, float scale) {
    return Load(block.m + mix * kLanes) * Broadcast(scale) + Broadcast(block.base[mix]);
  };
  const F32x16 eps = Broadcast(block.eps);
  for (int j = 0; j < kStreamCount; ++j) {
    Store(Sigmoid(input(j, block.scale[0])) + eps, block.pre + j * kLanes);
    Store(Broadcast(2.0f) * Sigmoid(input(kStreamCount + j, block.scale[1])),
          block.post + j * kLanes);
  }
  F32x16 c[kStreamCount][kStreamCount];
  for (int j = 0; j < kStreamCount; ++j) {
    F32x16* row = c[j];
    for (int k = 0; k < kStreamCount; ++k) {
      row[k] = input(2 * kStreamCount + j * kStreamCount + k, block.scale[2]);
    }
    const F32x16 largest = Max(Max(row[0], row[1]), Max(row[2], row[3]));
    for (int k = 0; k < kStreamCount; ++k) row[k] = Exp(row[k] - largest);
    const F32x16 sum = (row[0] + row[1]) + (row[2] + row[3]);
    for (int k = 0; k < kStreamCount; ++k) row[k] = row[k] / sum + eps;
  }
  const auto normalise_columns = [&] {
    for (int k = 0; k < kStreamCount; ++k) {
      const F32x16 sum = ((c[0][k] + c[1][k]) + (c[2][k] + c[3][k])) + eps;
      for (int j = 0; j < kStreamCount; ++j) c[j][k] = c[j][k] / sum;
    }
  };
  normalise_columns();
  for (int i = 1; i < block.iterations; ++i) {
    for (int j = 0; j < kStreamCount; ++j) {
      const F32x16 sum = ((c[j][0] + c[j][1]) + (c[j][2] + c[j][3])) + eps;
      for (int k = 0; k < kStreamCount; ++k) c[j][k] = c[j][k] / sum;
    }
    normalise_columns();
  }
  for (int j = 0; j < kStreamCount; ++j) {
    for (int k = 0; k < kStreamCount; ++k) {
      Store(c[j][k], block.comb + (j * kStreamCount + k) * kLanes);
    }
  }
}

void HcRead(const BFloat16* streams, const float* pre, int64_t d, BFloat16* x) {
  for (int64_t i = 0; i < d; i += kLanes) {
    F32x16 sum = Broadcast(pre[0]) * Load(streams + i);
    for (int j = 1; j < kStreamCount; ++j) {
      sum = Fma(Broadcast(pre[j]), Load(streams + j * d + i), sum);
    }
    Store(sum, x + i);
  }
}

void HcWrite(const BFloat16* o, const float* post, const float* comb, int64_t d,
             BFloat16* streams) {
  for (int64_t i = 0; i < d; i += kLanes) {
    F32x16 x[kStreamCount];
    for (int j = 0; j < kStreamCount; ++j) x[j] = Load(streams + j * d + i);
    const F32x16 output = Load(o + i);
    for (int k = 0; k < kStreamCount; ++k) {
      F32x16 sum = Broadcast(post[k]) * output;
      for (int j = 0; j < kStreamCount; ++j) {
        sum = Fma(Broadcast(comb[j * kStreamCount + k]), x[j], sum);
      }
      Store(sum, streams + k * d + i);
    }
  }
}

void Pool(const PoolBlock& block) {
  for (int channel = 0; channel < block.channels; channel += kLanes) {
    F32x16 largest = Load(block.g[0] + channel);
    for (int i = 1; i < block.count; ++i) largest = Max(Load(block.g[i] + channel), largest);
    F32x16 total = Zero();
    F32x16 sum = Zero();
    for (int i = 0; i < block.count; ++i) {
      const F32x16 weight = Exp(Load(block.g[i] + channel) - largest);
      total = total + weight;
      sum = Fma(weight, Load(block.c[i] + channel), sum);
    }
    Store(sum / total, block.out + channel);
  }
}

void SumRows(const BFloat16* rows, int64_t count, int64_t n, BFloat16* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    F32x16 sum = Load(rows + i);
    for (int64_t row = 1; row < count; ++row) sum = sum + Load(rows + row * n + i);
    Store(sum, y + i);
  }
}

void Swiglu(const BFloat16* gate, const BFloat16* up, float weight, float limit, int n,
            BFloat16* v) {
  const F32x16 high = Broadcast(limit);
  const F32x16 low = Broadcast(-limit);
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 a = Min(high, Load(gate + i));  // in this order NaN stays NaN
    const F32x16 b = Max(low, Min(high, Load(up + i)));
    Store(Broadcast(weight) * (a * Sigmoid(a) * b), v + i);
  }
}

}  // namespace baton::kernels::BATON_ISA
