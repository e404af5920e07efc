#pragma once

#include <cstdint>
#include <span>

#include "common/base/bf16.h"

// The inner loops of the CPU ops, one table per instruction set. Ops check shapes, split work over
// threads and call these on one block; nobody else does. All tables compute the same bits.

namespace baton::kernels {

// y[m, panels * 16] = x w^T; x FP32 [rows, k]. Panels as in PackedMatrix; the last one stores only
// the columns that exist. Exactly one of y_bf16, y_f32 is set.
struct GemmBlock {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t k = 0;
  const BFloat16* bf16_panels = nullptr;  // one of these two
  const float* f32_panels = nullptr;
  int64_t first_panel = 0;
  int64_t end_panel = 0;
  int64_t columns = 0;  // of the whole matrix
  BFloat16* y_bf16 = nullptr;
  float* y_f32 = nullptr;
  int64_t y_stride = 0;
};

// The inner loops read this many pointers beyond the last candidate; they must be valid.
inline constexpr int kAttentionSpareEntries = 16;

// One row of SparseAttention. Scratch: see AttentionScratchFloats.
struct AttentionRow {
  const BFloat16* q = nullptr;  // [heads, head_dim]
  int heads = 0;
  int head_dim = 0;                          // multiple of 64
  const BFloat16* const* entries = nullptr;  // [count + kAttentionSpareEntries], the spare ones any
  int64_t count = 0;                         // >= 1
  const float* sinks = nullptr;              // [heads]
  float scale = 0;
  float* scratch = nullptr;
  BFloat16* out = nullptr;  // [heads, head_dim]
};
inline int64_t AttentionScratchFloats(int heads, int head_dim, int64_t count) {
  return int64_t{heads} * (head_dim + (count + 15) / 16 * 16);
}

inline constexpr int kIndexBlockEntries = 32;

// scores[row, 0..kIndexBlockEntries) of IndexLogits for one block of entries.
struct IndexBlock {
  const float* q = nullptr;  // [rows, heads, 128]
  const float* w = nullptr;  // [rows, heads]
  int64_t rows = 0;
  int heads = 0;
  const float* keys = nullptr;  // panels of 16 entries, each [128][16]
  float* scores = nullptr;      // out [rows, kIndexBlockEntries]
  int64_t stride = 0;
};

// Softmax-weighted sum per channel over `count` candidates: c[i], g[i] point to `channels` values.
struct PoolBlock {
  const float* const* c = nullptr;
  const float* const* g = nullptr;
  int count = 0;
  int channels = 0;  // multiple of 16
  BFloat16* out = nullptr;
};

// Sixteen tokens at once; see HcPreParams. m is lane-major: m[mix * 16 + token].
struct HcMixBlock {
  const float* m = nullptr;  // [24, 16]
  const float* scale = nullptr;
  const float* base = nullptr;
  int iterations = 0;
  float eps = 0;
  float* pre = nullptr;   // out [4, 16]
  float* post = nullptr;  // out [4, 16]
  float* comb = nullptr;  // out [16, 16]
};

struct IsaKernels {
  const char* name;
  void (*widen)(const BFloat16* x, int64_t n, float* y);  // n is a multiple of 16
  void (*gemm)(const GemmBlock& block);
  void (*fake_quant_fp8)(const BFloat16* x, BFloat16* y, int n, int group);
  void (*fake_quant_fp4)(const BFloat16* x, BFloat16* y, int n);
  // y = bf16(e4m3(codes) * scale), n a multiple of 16, scale a power of two.
  void (*decode_e4m3)(const uint8_t* codes, int n, float scale, BFloat16* y);
  void (*hadamard128)(BFloat16* x);
  float (*mean_square)(const BFloat16* x, int n);
  // y = bf16(weight * (x * factor)); weight null: bf16(x * factor).
  void (*scale_row)(const BFloat16* x, const float* weight, float factor, int n, BFloat16* y);
  void (*hc_mix)(const HcMixBlock& block);
  // x = bf16(sum_j pre_j X_j) over four streams of d values.
  void (*hc_read)(const BFloat16* streams, const float* pre, int64_t d, BFloat16* x);
  // X_k = bf16(post_k o + sum_j C_jk X_j), in place.
  void (*hc_write)(const BFloat16* o, const float* post, const float* comb, int64_t d,
                   BFloat16* streams);
  void (*pool)(const PoolBlock& block);
  void (*attention_row)(const AttentionRow& row);
  // panel[i * 16 + r] = rows[r][i] for 16 rows of n values, n even.
  void (*interleave)(const BFloat16* const* rows, int n, float* panel);
  void (*index_block)(const IndexBlock& block);
  // y = bf16(sum of `count` consecutive rows of n values, in order), n a multiple of 16.
  void (*sum_rows)(const BFloat16* rows, int64_t count, int64_t n, BFloat16* y);
  // v = bf16(weight * silu(min(a, limit)) * clamp(b, +-limit)), n a multiple of 16.
  void (*swiglu)(const BFloat16* gate, const BFloat16* up, float weight, float limit, int n,
                 BFloat16* v);
};

// The best table this machine can run.
const IsaKernels& Isa();
// All of them, portable first.
std::span<const IsaKernels* const> RunnableIsas();

}  // namespace baton::kernels
