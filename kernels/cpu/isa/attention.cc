#include "kernels/cpu/isa/kernels.h"

namespace baton::kernels::BATON_ISA {

namespace {

// What fits the registers: heads and entries of a tile of scores, pairs of channels of an output.
#if BATON_ISA_BYTES == 64
constexpr int kGroupHeads = 4, kTileEntries = 4, kTilePairs = 2;
#else
constexpr int kGroupHeads = 2, kTileEntries = 2, kTilePairs = 1;
#endif
// Entries lie anywhere in memory, so the hardware cannot guess the next one.
constexpr int kPrefetchEntries = 8;
static_assert(kPrefetchEntries + kTileEntries <= kAttentionSpareEntries);

// Within each 32 channels a query is kept as the even ones, then the odd ones: the order in which
// LoadEvenOdd delivers the entries.
constexpr int kPair = 2 * kLanes;

// scores[h][e] = q_h . k_e for kHeads heads and all entries (count rounded up to a tile).
template <int kHeads>
void Scores(const AttentionRow& row, const float* q, int64_t padded, float* scores) {
  for (int64_t e = 0; e < row.count; e += kTileEntries) {
    F32x16 sum[kHeads * kTileEntries];
    for (F32x16& s : sum) s = Zero();
    const BFloat16* const* entries = row.entries + e;
    for (int i = 0; i < row.head_dim; i += kPair) {
      EvenOdd k[kTileEntries];
#pragma GCC unroll 4
      for (int t = 0; t < kTileEntries; ++t) {
        k[t] = LoadEvenOdd(entries[t] + i);
        __builtin_prefetch(entries[kTileEntries + t] + i);
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F32x16 even = Load(q + h * row.head_dim + i);
        const F32x16 odd = Load(q + h * row.head_dim + i + kLanes);
#pragma GCC unroll 4
        for (int t = 0; t < kTileEntries; ++t) {
          F32x16& s = sum[h * kTileEntries + t];
          s = Fma(odd, k[t].odd, Fma(even, k[t].even, s));
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
    Store(RoundToBf16Lanes(p), scores + e);
  }
  float sink_weight[kLanes];
  Store(Exp(Broadcast(sink) - m), sink_weight);
  return Sum(total) + sink_weight[0];
}

// out_h = sum_e P[h][e] v_e / denominator_h, entries in order.
template <int kHeads>
void Values(const AttentionRow& row, const float* p, int64_t padded, const float* denominators,
            BFloat16* out) {
  for (int channel = 0; channel < row.head_dim; channel += kTilePairs * kPair) {
    EvenOdd sum[kHeads][kTilePairs];
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kTilePairs; ++i) sum[h][i] = {Zero(), Zero()};
    }
    for (int64_t e = 0; e < row.count; ++e) {
      const BFloat16* entry = row.entries[e] + channel;
      const BFloat16* ahead = row.entries[e + kPrefetchEntries] + channel;
      EvenOdd v[kTilePairs];
#pragma GCC unroll 4
      for (int i = 0; i < kTilePairs; ++i) {
        v[i] = LoadEvenOdd(entry + i * kPair);
        __builtin_prefetch(ahead + i * kPair);
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F32x16 weight = Broadcast(p[h * padded + e]);
#pragma GCC unroll 4
        for (int i = 0; i < kTilePairs; ++i) {
          sum[h][i].even = Fma(weight, v[i].even, sum[h][i].even);
          sum[h][i].odd = Fma(weight, v[i].odd, sum[h][i].odd);
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      const F32x16 denominator = Broadcast(denominators[h]);
      for (int i = 0; i < kTilePairs; ++i) {
        StoreEvenOdd({sum[h][i].even / denominator, sum[h][i].odd / denominator},
                     out + h * row.head_dim + channel + i * kPair);
      }
    }
  }
}

template <int kHeads>
void AttendHeads(const AttentionRow& row, int head) {
  const int64_t padded = (row.count + kLanes - 1) / kLanes * kLanes;
  float* q = row.scratch;
  float* scores = q + kHeads * row.head_dim;
  for (int i = 0; i < kHeads * row.head_dim; i += kPair) {
    const EvenOdd channels = LoadEvenOdd(row.q + head * row.head_dim + i);
    Store(channels.even, q + i);
    Store(channels.odd, q + i + kLanes);
  }
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
  for (; head + kGroupHeads <= row.heads; head += kGroupHeads) {
    AttendHeads<kGroupHeads>(row, head);
  }
  for (; head < row.heads; ++head) AttendHeads<1>(row, head);
}

}  // namespace baton::kernels::BATON_ISA
