#pragma once

#include <array>
#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/matrix.h"
#include "kernels/rope.h"

struct CUstream_st;

// kernels/rope.h on the device, to the same bits.

namespace baton::kernels::cuda {

using RopeFrequencies = std::array<float, kRopePairs>;
inline RopeFrequencies FrequenciesOf(const RopeTable& table) {
  RopeFrequencies frequencies{};
  for (int i = 0; i < kRopePairs; ++i) frequencies[i] = table.frequencies()[i];
  return frequencies;
}

// rope row i = RopeTable::Fill(positions[i]); once a batch, for all layers with these frequencies.
void FillRope(const RopeFrequencies& frequencies, const int32_t* positions, int64_t rows,
              float* rope, CUstream_st* stream);
// rope row i = RopeTable::Fill(i * step); once, for entries of `step` tokens: 256 bytes an entry.
void FillRopeTable(const RopeFrequencies& frequencies, int step, int64_t rows, float* rope,
                   CUstream_st* stream);

// How entries of `step` tokens are rotated. KV entries read the CPU's cosines and sines, 256 bytes
// beside 1,024 of their own. Index keys, which have 256, would wait for them: they compute theirs,
// each off by 2^-20 at most.
struct EntryRope {
  RopeFrequencies frequencies = {};
  int step = 0;
  const float* table = nullptr;  // FillRopeTable of the same; aligned to 16 bytes
};

// QueryNormRope, head_dim 512. Rows of q are aligned to 16 bytes.
struct QueryNormRopeParams {
  MatrixView<BFloat16> q;  // [rows, heads * 512], in place
  int heads = 0;
  float eps = 1e-6f;
  const float* rope = nullptr;  // [rows, 64]
};
void QueryNormRope(const QueryNormRopeParams& params, CUstream_st* stream);

// InverseRope for any head_dim that is a multiple of 8. A launch of its own: it touches an eighth
// of the attention's output, and the product that follows reads that through its own pipeline.
void InverseRope(MatrixView<BFloat16> o, int heads, const float* rope, CUstream_st* stream);

}  // namespace baton::kernels::cuda
