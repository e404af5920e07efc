#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/hyper_connection.h"
#include "kernels/matrix.h"

struct CUstream_st;

// kernels/hyper_connection.h. D a multiple of 256; rows aligned to 16 bytes.
//
// The product with `fn` is FP32 by FP32: streams are BF16 already, and `fn` is the sum of three
// BF16 numbers (24 bits), so every product is exact on the tensor cores; what they add up is moved
// to FP32 registers after 64 channels. The sum over channels is cut at fixed places, whatever the
// number of rows: a row's bits do not depend on the batch.

namespace baton::kernels::cuda {

// `fn` [mixes, 4 D] in the order the product reads it; made once, when weights are loaded.
int64_t HcFnBytes(int mixes, int64_t width);
void PackHcFn(MatrixView<const float> fn, void* packed, CUstream_st* stream);

// Bytes of scratch that HcPre and HcHead need for up to `rows` rows.
int64_t HcScratchBytes(int64_t rows);

struct HcPreParams {
  MatrixView<const BFloat16> streams;  // X [rows, 4 D]
  const void* fn = nullptr;            // PackHcFn of [24, 4 D]
  const float* scale = nullptr;        // [3]
  const float* base = nullptr;         // [24]
  int iterations = 20;
  float norm_eps = 1e-6f;
  float hc_eps = 1e-6f;
  MatrixView<BFloat16> x;   // out [rows, D]
  float* post = nullptr;    // out [rows, 4]
  float* comb = nullptr;    // out [rows, 16]
  void* scratch = nullptr;  // aligned to 16 bytes
};
void HcPre(const HcPreParams& params, CUstream_st* stream);

struct HcPostParams {
  MatrixView<const BFloat16> output;  // o [rows, D]
  const float* post = nullptr;        // [rows, 4]
  const float* comb = nullptr;        // [rows, 16]
  MatrixView<BFloat16> streams;       // X in, X' out [rows, 4 D]
};
void HcPost(const HcPostParams& params, CUstream_st* stream);

struct HcHeadParams {
  MatrixView<const BFloat16> streams;  // X [rows, 4 D]
  const void* fn = nullptr;            // PackHcFn of [4, 4 D]
  const float* scale = nullptr;        // [1]
  const float* base = nullptr;         // [4]
  float norm_eps = 1e-6f;
  float hc_eps = 1e-6f;
  MatrixView<BFloat16> x;   // out [rows, D]
  void* scratch = nullptr;  // aligned to 16 bytes
};
void HcHead(const HcHeadParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
