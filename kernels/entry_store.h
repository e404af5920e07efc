#pragma once

#include <cstdint>
#include <span>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/matrix.h"
#include "kernels/numeric.h"
#include "kernels/parallel.h"
#include "kernels/rope.h"

namespace baton::kernels {

// Finishes pooled entries and stores them, each step rounded to BF16:
//   RMSNorm(weight); rotation of the last 64 channels at position ratio * entry; then
//   head_dim 512 (KV):    under kReference FakeQuantFp8, groups of 64, on the first 448 channels;
//   head_dim 128 (index): Hadamard128, then under kReference FakeQuantFp4;
// and EncodeEntry in the pool's format.
struct StoreEntriesParams {
  MatrixView<const BFloat16> pooled;   // [entries, head_dim]
  int64_t first_entry = 0;             // entry of row 0
  int ratio = 0;                       // tokens an entry
  std::span<const float> weight = {};  // [head_dim]
  float eps = 1e-6f;
  const RopeTable* rope = nullptr;
  Numerics numerics = Numerics::kReference;
  PagedPool pool = {};
  PageTable pages = {};  // covers all entries
};
void StoreEntries(const StoreEntriesParams& params, ThreadPool& pool);

}  // namespace baton::kernels
