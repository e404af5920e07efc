#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/cuda/batch.h"

namespace baton::kernels::cuda {

// SparseAttention of kernels/sparse_attention.h for all rows of a batch: CSA layers with a
// selection, HCA layers with every visible entry (`selected` null), window layers (ratio 0).
// Products accumulate FP32 in the order of the tensor cores and candidates are visited 64 at a time
// with a running maximum, which wgmma moves only when scores exceed it by a factor of 2^8. Where
// rows are too few to fill the device their candidates are cut into parts, whose number depends on
// the size of the batch: results differ by rounding then. With `fixed_parts` they are cut by a
// row's position alone, so that its bits do not depend on the batch: a part is what a row with a
// selection attends, or at least 640 candidates. Nothing is written for padded rows.
struct SparseAttentionParams {
  BatchView batch;
  const BFloat16* q = nullptr;   // [batch.rows, heads * 512], aligned to 16 bytes
  int heads = 0;                 // up to 64, or a multiple of 64
  const float* sinks = nullptr;  // [heads]
  float scale = 0;
  int window = 128;
  bool fixed_parts = false;

  const BFloat16* chunk = nullptr;    // [batch.rows, 512]: window rows of this step
  SlotRings<const BFloat16> rings{};  // window rows of positions before a sequence's start

  int ratio = 0;        // 0: window only
  PagedPool pool{};     // kBf16 or kFp8Packed, on the device; entries_per_page a power of two
  int max_entries = 0;  // no row has more compressed candidates
  const int32_t* selected = nullptr;  // [batch.rows, k], -1 from the end of a row's selection on
  int k = 0;

  BFloat16* out = nullptr;   // [batch.rows, heads * 512], aligned to 16 bytes; may be q
  float* scratch = nullptr;  // SparseAttentionScratchBytes, aligned to 16 bytes
};

// The fastest variant that the current device runs.
void SparseAttention(const SparseAttentionParams& params, CUstream_st* stream);

// wgmma; see variants.h.
void SparseAttentionSm90a(const SparseAttentionParams& params, CUstream_st* stream);
// mma.sync; half the heads a block, and with 99 KiB of shared memory.
void SparseAttentionPortable(const SparseAttentionParams& params, CUstream_st* stream);

// At most 20 MB, whatever the context.
int64_t SparseAttentionScratchBytes(const SparseAttentionParams& params);

}  // namespace baton::kernels::cuda
