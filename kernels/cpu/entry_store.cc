#include "kernels/entry_store.h"

#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "kernels/cache_entry.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

void StoreEntries(const StoreEntriesParams& params, ThreadPool& pool) {
  constexpr int kIndexDim = 128;
  const int n = params.pool.head_dim;
  BATON_CHECK(params.pooled.cols == n && static_cast<int64_t>(params.weight.size()) == n &&
              (n == kIndexDim || (n % 64 == 0 && n > kRopeDim)))
      << "head_dim " << n;
  const IsaKernels& isa = Isa();
  const bool simulate = params.numerics == Numerics::kReference;
  pool.For(params.pooled.rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<BFloat16> values(n);
    BFloat16* row = values.data();
    float cos_sin[kRopeDim];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t entry = params.first_entry + i;
      const float factor = 1.0f / std::sqrt(isa.mean_square(params.pooled.Row(i), n) + params.eps);
      isa.scale_row(params.pooled.Row(i), params.weight.data(), factor, n, row);
      params.rope->Fill(entry * params.ratio, cos_sin);
      RotateRow(row + n - kRopeDim, cos_sin);
      if (n == kIndexDim) {
        isa.hadamard128(row);
        if (simulate) isa.fake_quant_fp4(row, row, n);
      } else if (simulate) {
        isa.fake_quant_fp8(row, row, n - kRopeDim, 64);
      }
      EncodeEntry(params.pool, params.pages, entry, row);
    }
  });
}

}  // namespace baton::kernels
