#include "kernels/cpu/isa/kernels.h"

namespace baton::kernels::BATON_ISA {

namespace {

constexpr int kTileEntries = 4;

// scores[h][e] = q_h . k_e for kHeads heads and all entries (count rounded up to a tile).
template <int kHeads>
void Scores(const AttentionRow& row, const float* q, int64_t padded, float* scores) {
  for (int64_t e = 0; e < row.count; e += kTileEntries) {
    F32x16 sum[kHeads * kTileEntries];
    for (F32x16& s : sum) s = Zero();
    const BFloat16* const* entries = row.entries + e;
    for (int i = 0; i < row.head_dim; i += kLanes) {
      F32x16 k[kTileEntries];
#pragma GCC unroll 4
      for (int t = 0; t < kTileEntries; ++t) k[t] = Load(entries[t] + i);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F32x16 query = Load(q + h * row.head_dim + i);
#pragma GCC unroll 4
        for (int t = 0; t < kTileEntries; ++t) {
          sum[h * kTileEntries + t] = Fma(query, k[t], sum[h * kTileEntries + t]);
        }
      }
    }
    if constexpr (kHeads * kTileEntries == kLanes) {
      float sums[kLanes];
      SumEach(sum, sums);
      for (int h = 0; h < kHeads; ++h) {
        for (int t = 0; t < kTileEntries; ++t) {
          scores[h * padded + e + t] = sums[h * kTileEntries + t];
        }
      }
    } else {
      for (int h = 0; h < kHeads; ++h) {
        for (int t = 0; t < kTileEntries; ++t) {
          scores[h * padded + e + t] = Sum(sum[h * kTileEntries + t]);
        }
      }
    }
  }
}

// Scores of one head -> P rounded to BF16 (as FP32), zero in the padding. Returns the denominator.
float Softmax(const AttentionRow& row, float sink, int64_t padded, float* scores) {
  for (int64_t e = row.count; e < padded; ++e) scores[e] = -__builtin_inff();
  const F32x16 scale = Broadcast(row.scale);
  F32x16 largest = Broadcast(-__builtin_inff());
  for (int64_t e = 0; e < padded; e += kLanes) {
    const F32x16 s = Load(scores + e) * scale;
    Store(s, scores + e);
    largest = Max(s, largest);
  }
  const F32x16 m = Broadcast(MaxLane(largest));
  F32x16 total = Zero();
  for (int64_t e = 0; e < padded; e += kLanes) {
    const F32x16 p = Exp(Load(scores + e) - m);
    total = total + p;
    BFloat16 rounded[kLanes];
    Store(p, rounded);
    Store(Load(rounded), scores + e);
  }
  float sink_weight[kLanes];
  Store(Exp(Broadcast(sink) - m), sink_weight);
  return Sum(total) + sink_weight[0];
}

// out_h = sum_e P[h][e] v_e / denominator_h, entries in order.
template <int kHeads>
void Values(const AttentionRow& row, const float* p, int64_t padded, const float* denominators,
            BFloat16* out) {
  constexpr int kVectors = 4;
  for (int channel = 0; channel < row.head_dim; channel += kVectors * kLanes) {
    F32x16 sum[kHeads][kVectors];
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kVectors; ++i) sum[h][i] = Zero();
    }
    for (int64_t e = 0; e < row.count; ++e) {
      const BFloat16* entry = row.entries[e] + channel;
      F32x16 v[kVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) v[i] = Load(entry + i * kLanes);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F32x16 weight = Broadcast(p[h * padded + e]);
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) sum[h][i] = Fma(weight, v[i], sum[h][i]);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kVectors; ++i) {
        Store(sum[h][i] / Broadcast(denominators[h]),
              out + h * row.head_dim + channel + i * kLanes);
      }
    }
  }
}

template <int kHeads>
void AttendHeads(const AttentionRow& row, int head) {
  const int64_t padded = (row.count + kLanes - 1) / kLanes * kLanes;
  float* q = row.scratch;
  float* scores = q + kHeads * row.head_dim;
  Widen(row.q + head * row.head_dim, int64_t{kHeads} * row.head_dim, q);
  Scores<kHeads>(row, q, padded, scores);
  float denominators[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    denominators[h] = Softmax(row, row.sinks[head + h], padded, scores + h * padded);
  }
  Values<kHeads>(row, scores, padded, denominators, row.out + head * row.head_dim);
}

}  // namespace

void AttendRow(const AttentionRow& row) {
  int head = 0;
  for (; head + 4 <= row.heads; head += 4) AttendHeads<4>(row, head);
  for (; head < row.heads; ++head) AttendHeads<1>(row, head);
}

}  // namespace baton::kernels::BATON_ISA
