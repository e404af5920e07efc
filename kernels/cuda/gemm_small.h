#pragma once

#include <cstdint>

#include "common/base/bf16.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// y[m, n] = sum_k x[m, k] * w[n, k] for few rows, as in a decoding step, where a product costs what
// it takes to read w. A row's bits depend on neither the other rows nor their number.
//
// With wgmma an output is one sum over ascending k in the tensor cores' own steps, and with FP8
// activations, whose sums keep about 14 bits of the largest term there, an FP32 sum over chunks of
// 128 columns, each scaled first: the bits of LtMatmul. With mma.sync products are exact and sums
// FP32: per 16 columns by the tensor cores, then over every eighth chunk of 128 bytes of a weight's
// row, then over those eight sums.
struct SmallGemmParams {
  enum class Format : uint8_t { kBf16, kF32, kFp8 };
  static constexpr int kChunkBytes = 128;  // of a row of w, multiplied at a time

  Format w_format = Format::kBf16;  // kBf16, kFp8
  Format x_format = Format::kBf16;  // kBf16, kFp8; kFp8 with FP8 weights only
  Format y_format = Format::kBf16;  // kBf16, kF32
  int rows = 0;                     // at most 32 with mma.sync
  int64_t n = 0;
  int64_t k = 0;   // a multiple of kChunkBytes of w
  int groups = 1;  // independent products with n a multiple of 128, one after another everywhere

  const void* w = nullptr;          // [groups * n, k]
  const float* w_scales = nullptr;  // FP8: [groups * n / 128, w_scale_stride]
  int64_t w_scale_stride = 0;
  const void* x = nullptr;  // rows aligned to 16 bytes; group g at column g * x_group
  int64_t x_stride = 0;
  int64_t x_group = 0;
  const float* x_scales =
      nullptr;                 // FP8: [k / 128, x_scale_stride], readable to a multiple of 16 rows
  int64_t x_scale_stride = 0;  // even
  void* y = nullptr;           // group g at column g * n
  int64_t y_stride = 0;
};
// Whether it is the one to take, rather than LtMatmul, for so many rows of outputs and n of a
// group: rows are few, or outputs so few that whole sums leave LtMatmul's larger tiles idle.
bool PrefersSmallGemm(int64_t rows, int64_t n);

void SmallGemm(const SmallGemmParams& params, CUstream_st* stream);

// wgmma; see variants.h. A block computes a panel of weight rows, 16, 32 or 64 of them, by up to
// kTokens tokens.
struct SmallGemmTile {
  static constexpr int kTokens = 64;
  static constexpr int kNarrowest = 16;
  static constexpr int kWidest = 64;
};
void SmallGemmSm90a(const SmallGemmParams& params, CUstream_st* stream);
// mma.sync.
void SmallGemmPortable(const SmallGemmParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
