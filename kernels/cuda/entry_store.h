#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/cuda/rope.h"
#include "kernels/numeric.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/entry_store.h for entries of any number of sequences. head_dim 512 gives the CPU's bits;
// with head_dim 128 norm and Hadamard transform run on the tensor cores, which sum in another order
// and round in fewer places, and rotations are computed (rope.h). Of a million stored bytes that
// moves some 200 of BF16, 40 of FP8 and 10 of FP4, with the reference numerics 10 of any. A NaN
// marks its FP4 group by scale byte 255.
//
// One kernel template over head_dim, storage format and numerics, but for index keys in FP4, which
// have their own (index_store.h); the pool names the instance.
// head_dim 128: kBf16, kFp8Index, kFp4Index; head_dim 512: kBf16, kFp8Packed. Pages, page_bytes,
// pooled and weight are aligned to 16 bytes.
struct StoreEntriesParams {
  const BFloat16* pooled = nullptr;     // [rows, head_dim]
  const int32_t* sequence = nullptr;    // [rows] row of the page table; -1: store nothing
  const int32_t* entry = nullptr;       // [rows]
  int64_t rows = 0;                     // below 2^30
  const int32_t* page_table = nullptr;  // [sequences, max_pages], at least one entry
  int max_pages = 0;
  const BFloat16* weight = nullptr;  // [head_dim]
  float eps = 1e-6f;
  EntryRope rope = {};  // of the pool's tokens an entry
  Numerics numerics = Numerics::kReference;
  PagedPool pool = {};  // data on the device
};
void StoreEntries(const StoreEntriesParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
